-- What the queries of this folder are planned against.
CREATE AGENT edge AT 'edge:7410' SLOTS 20 ZONE 'plant' WITHOUT ENGINE;
CREATE AGENT spark-1 AT 'spark-1:7410' SLOTS 16 ZONE 'north';
CREATE AGENT spark-2 AT 'spark-2:7410' SLOTS 32 ZONE 'south';

-- Cars on highways: one TCP source that never ends and one file that does.
CREATE LOGICAL SOURCE lrb(
  creationTS TIMESTAMP, vehicle INT32, speed FLOAT32, highway INT16, lane UINT8, direction BOOL, position INT64
);
CREATE PHYSICAL SOURCE lrb_tcp FOR lrb TYPE TCP ON edge SET(
  'localhost' AS `SOURCE`.SOCKET_HOST, 50501 AS `SOURCE`.SOCKET_PORT, 'CSV' AS PARSER.`TYPE`
);
CREATE PHYSICAL SOURCE lrb_file FOR lrb TYPE FILE ON edge SET('input.json' AS `SOURCE`.FILE_PATH, 'JSON' AS PARSER.`TYPE`);

-- Every type there is.
CREATE LOGICAL SOURCE types(
  ts TIMESTAMP, b BOOL, i8 INT8, i16 INT16, i32 INT32, i64 INT64, u8 UINT8, u16 UINT16, u32 UINT32, u64 UINT64,
  f32 FLOAT32, f64 FLOAT64, d10 DECIMAL(10,2), d38 DECIMAL(38,10), s VARCHAR, c CHAR(3), bin BINARY, day DATE,
  ints ARRAY<INT32>, names ARRAY<VARCHAR>, tags MAP<VARCHAR, INT32>, place STRUCT<city: VARCHAR, at: STRUCT<x: FLOAT64, y: FLOAT64>>,
  must INT32 NOT NULL, doc VARCHAR
);
CREATE PHYSICAL SOURCE types_file FOR types TYPE FILE ON edge SET('types.json' AS `SOURCE`.FILE_PATH, 'JSON' AS PARSER.`TYPE`);

-- Streams to join, on Kafka and on native topics.
CREATE LOGICAL SOURCE orders(ts TIMESTAMP, id INT64 NOT NULL, customer VARCHAR, amount DECIMAL(12,2), status VARCHAR);
CREATE PHYSICAL SOURCE orders_kafka FOR orders TYPE KAFKA SET(
  'kafka:9092' AS `SOURCE`.BOOTSTRAP_SERVERS, 'orders' AS `SOURCE`.TOPIC
);
CREATE LOGICAL SOURCE payments(ts TIMESTAMP, order_id INT64, paid DECIMAL(12,2), method VARCHAR);
CREATE PHYSICAL SOURCE payments_topic FOR payments TYPE TOPIC SET('payments' AS `SOURCE`.TOPIC);
CREATE LOGICAL SOURCE shipments(ts TIMESTAMP, order_id INT64, carrier VARCHAR, sent TIMESTAMP);
CREATE PHYSICAL SOURCE shipments_topic FOR shipments TYPE TOPIC SET('shipments' AS `SOURCE`.TOPIC);

-- Times as integers.
CREATE LOGICAL SOURCE ticks(at_s INT64, at_ms INT64, at_us INT64, at_ns UINT64, symbol VARCHAR, price FLOAT64);
CREATE PHYSICAL SOURCE ticks_file FOR ticks TYPE FILE ON edge SET('ticks.csv' AS `SOURCE`.FILE_PATH, 'CSV' AS PARSER.`TYPE`);

-- A source with columns that are called as bounds of windows are, and one that nothing feeds.
CREATE LOGICAL SOURCE sessions(ts TIMESTAMP, start TIMESTAMP, "end" TIMESTAMP, window INT32, "Weird Name" VARCHAR);
CREATE PHYSICAL SOURCE sessions_gen FOR sessions TYPE GENERATOR ON edge;
CREATE LOGICAL SOURCE empty(a INT32);
CREATE LOGICAL SOURCE mixed(ts TIMESTAMP, k VARCHAR, v INT32);
CREATE PHYSICAL SOURCE mixed_file FOR mixed TYPE FILE ON edge SET('mixed.csv' AS `SOURCE`.FILE_PATH, 'CSV' AS PARSER.`TYPE`);
CREATE PHYSICAL SOURCE mixed_topic FOR mixed TYPE TOPIC SET('mixed' AS `SOURCE`.TOPIC);

-- The sink of queries that are refused before it matters; others bring their own.
CREATE SINK out(a INT32) TYPE PRINT ON edge;
