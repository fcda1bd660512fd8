--- throughput_of_the_cluster
CREATE LOGICAL SOURCE worker_statistics(workerId VARCHAR, recordsProcessed UINT64);
CREATE PHYSICAL SOURCE FOR worker_statistics TYPE TOPIC SET('worker_statistics' AS `SOURCE`.TOPIC);
CREATE SINK dashboard_sink(start TIMESTAMP, end TIMESTAMP, totalThroughput DECIMAL(30,0)) TYPE PRINT ON edge;
SELECT start, end, SUM(recordsProcessed) AS totalThroughput
FROM worker_statistics
WINDOW TUMBLING(size = 5s)
INTO dashboard_sink
--- refused_missed_heartbeats
CREATE LOGICAL SOURCE heartbeats(workerId VARCHAR, timestamp TIMESTAMP);
CREATE PHYSICAL SOURCE FOR heartbeats TYPE TOPIC SET('heartbeats' AS `SOURCE`.TOPIC);
CREATE SINK failure_alert_sink(workerId VARCHAR, inter_arrival_time INT64) TYPE PRINT ON edge;
SELECT workerId, (timestamp - prev_timestamp) as inter_arrival_time
FROM (SELECT workerId, timestamp, LAG(timestamp) OVER (PARTITION BY workerId) as prev_timestamp FROM heartbeats)
WINDOW SLIDING(size = 1m, advance = 1s)
GROUP BY workerId
HAVING inter_arrival_time > (AVG(inter_arrival_time) + 3 * STDDEV(inter_arrival_time))
INTO failure_alert_sink
--- workers_above_ninety_percent
CREATE LOGICAL SOURCE worker_resources(workerId VARCHAR, cpuUsage FLOAT64);
CREATE PHYSICAL SOURCE FOR worker_resources TYPE TOPIC SET('worker_resources' AS `SOURCE`.TOPIC);
CREATE SINK optimizer_trigger_sink(workerId VARCHAR, avgCpu FLOAT64) TYPE PRINT ON edge;
SELECT workerId, AVG(cpuUsage) AS avgCpu
FROM worker_resources
WINDOW SLIDING(size = 1 MINUTE, advance = 10 SECONDS)
GROUP BY workerId
HAVING avgCpu > 90.0
INTO optimizer_trigger_sink
--- slow_highways
CREATE LOGICAL SOURCE lrb2(creationTS TIMESTAMP, vehicle INT16, speed FLOAT32, highway INT16);
CREATE PHYSICAL SOURCE FOR lrb2 TYPE TCP ON edge SET(
  'localhost' as `SOURCE`.SOCKET_HOST,
  50501 as `SOURCE`.SOCKET_PORT,
  'CSV' as PARSER.`TYPE`,
  '\n' as PARSER.TUPLE_DELIMITER,
  ',' as PARSER.FIELD_DELIMITER
);
CREATE PHYSICAL SOURCE FOR lrb2 TYPE File ON edge SET(
  'input.json' as `SOURCE`.FILE_PATH,
  'JSON' as PARSER.`TYPE`
);
CREATE SINK csv_sink(start TIMESTAMP, end TIMESTAMP, highway INT16, avgSpeed FLOAT64) TYPE File ON edge SET(
  'results.csv' as `SINK`.FILE_PATH,
  'CSV' as `SINK`.INPUT_FORMAT,
  false as `SINK`.APPEND
);
SELECT start, end, highway, AVG(speed) AS avgSpeed
FROM (SELECT creationTS, highway, speed FROM lrb2)
GROUP BY (highway)
WINDOW SLIDING(creationTS, SIZE 5 MINUTES, ADVANCE BY 1 SEC)
HAVING avgSpeed < FLOAT32(40)
INTO csv_sink
--- slow_highways_by_integer_time
CREATE LOGICAL SOURCE lrb2(creationTS UINT64, vehicle INT16, speed FLOAT32, highway INT16);
CREATE PHYSICAL SOURCE FOR lrb2 TYPE File ON edge SET('input.json' as `SOURCE`.FILE_PATH, 'JSON' as PARSER.`TYPE`);
CREATE SINK csv_sink(start TIMESTAMP, end TIMESTAMP, highway INT16, avgSpeed FLOAT64) TYPE File ON edge SET('results.csv' as `SINK`.FILE_PATH);
SELECT start, end, highway, AVG(speed) AS avgSpeed
FROM (SELECT creationTS, highway, speed FROM lrb2)
GROUP BY (highway)
WINDOW SLIDING(creationTS UNIT MILLISECONDS, SIZE 5 MINUTES, ADVANCE BY 1 SEC)
HAVING avgSpeed < FLOAT32(40)
INTO csv_sink
