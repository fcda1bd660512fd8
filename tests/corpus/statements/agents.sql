--- smallest
CREATE AGENT edge-1 AT 'edge-1.plant:7410'
--- everything
CREATE AGENT IF NOT EXISTS "Edge_1" AT '[::1]:7410' SLOTS 4 ZONE 'hall 3' GROUP 'plant' PEERS (cloud-1, cloud-2) ROLES (LOG, FRAGMENTS) LABELS ('rack' = 'r7', gpu = true) WITHOUT ENGINE
--- nebulastream_words
CREATE WORKER w1 AT 'w1:9090' CAPACITY 8 PEERS w2
--- links
CREATE NETWORK LINK FROM a TO b; CREATE NETWORK LINK IF NOT EXISTS FROM b TO c; DROP NETWORK LINK IF EXISTS FROM a TO b
--- drop
DROP AGENT edge-1; DROP AGENT IF EXISTS edge-2 FORCE; DROP WORKER w1
--- refused_without_address
CREATE AGENT a SLOTS 4
--- refused_unknown_clause
CREATE AGENT a AT 'h:1' SLOT 4
--- refused_too_many_slots
CREATE AGENT a AT 'h:1' SLOTS 100001
--- refused_slots_that_are_no_number
CREATE AGENT a AT 'h:1' SLOTS many
--- refused_clause_twice
CREATE AGENT a AT 'h:1' AT 'h:2'
--- refused_unknown_role
CREATE AGENT a AT 'h:1' ROLES (LOGS)
--- refused_half_a_link
CREATE NETWORK LINK FROM a
--- refused_name_with_a_digit_first
CREATE AGENT 1a AT 'h:1'
