--- cluster_wide_throughput
-- Calculate the total records processed per second across the entire cluster
SELECT start, end, SUM(recordsProcessed) AS totalThroughput
FROM worker_statistics
WINDOW TUMBLING(size = 5s)
INTO dashboard_sink;
--- heartbeat_monitoring
-- Mimic "Phi Accrual style" failure detection using statistical variance
-- Alert if the interval between heartbeats exceeds the historical average + 3 standard deviations
SELECT workerId, (timestamp - prev_timestamp) as inter_arrival_time
FROM (SELECT workerId, timestamp, LAG(timestamp) OVER (PARTITION BY workerId) as prev_timestamp FROM heartbeats)
WINDOW SLIDING(size = 1m, advance = 1s)
GROUP BY workerId
HAVING inter_arrival_time > (AVG(inter_arrival_time) + 3 * STDDEV(inter_arrival_time))
INTO failure_alert_sink;
--- overload_detection
-- Trigger an alert if a worker's CPU usage exceeds 90% for a minute
SELECT workerId, AVG(cpuUsage) AS avgCpu
FROM worker_resources
WINDOW SLIDING(size = 1 MINUTE, advance = 10 SECONDS)
GROUP BY workerId
HAVING avgCpu > 90.0
INTO optimizer_trigger_sink;
--- watch_workers
-- Client initiates a long-lived watch request
WATCH SELECT id, state, capacity FROM workers WHERE state = 'ACTIVE';
--- bundle
CREATE LOGICAL SOURCE lrb(
  creationTS TIMESTAMP NOT NULL,
  vehicle INT32,
  speed FLOAT32,
  highway INT32,
  lane INT16,
  direction INT16,
  position INT32
);

CREATE PHYSICAL SOURCE FOR lrb TYPE TCP SET(
  'localhost' as `SOURCE`.SOCKET_HOST,
  50501 as `SOURCE`.SOCKET_PORT,
  'CSV' as PARSER.`TYPE`,
  '\n' as PARSER.TUPLE_DELIMITER,
  ',' as PARSER.FIELD_DELIMITER
);

CREATE PHYSICAL SOURCE FOR lrb TYPE File SET(
  'input.json' as `SOURCE`.FILE_PATH,
  'JSON' as PARSER.`TYPE`
);

CREATE SINK csv_sink(
  start TIMESTAMP,
  end TIMESTAMP,
  highway INT32,
  avgSpeed FLOAT64
) TYPE File SET(
  'results.csv' as `SINK`.FILE_PATH,
  'CSV' as `SINK`.INPUT_FORMAT,
  false as `SINK`.APPEND
);

SELECT start, end, highway, AVG(speed) AS avgSpeed
FROM (SELECT creationTS, highway, speed FROM lrb)
GROUP BY (highway)
WINDOW SLIDING(creationTS, SIZE 5 MINUTES, ADVANCE BY 1 SEC)
HAVING avgSpeed < FLOAT32(40)
INTO csv_sink;
--- refused_columns_left_open
CREATE LOGICAL SOURCE lrb(
  ...
);
