-- Cars come from a topic of Kafka; for every ten seconds and gate, how many passed and how fast goes to another one.

CREATE LOGICAL SOURCE cars (
  id INT64 NOT NULL,
  at TIMESTAMP NOT NULL,
  gate VARCHAR NOT NULL,
  speed INT64 NOT NULL
);

CREATE PHYSICAL SOURCE FOR cars TYPE KAFKA WITH (topic = 'cars', parser.type = 'JSON');

CREATE SINK traffic (start TIMESTAMP, gate VARCHAR, cars INT64, speeds INT64) TYPE KAFKA WITH (topic = 'traffic');

-- Partitions are read at their own pace: what one burst of the feeder covers may be out of order.
CREATE QUERY traffic AS
SELECT start, gate, COUNT(*) AS cars, SUM(speed) AS speeds
FROM cars
GROUP BY gate
WINDOW TUMBLING(at, SIZE 10 SEC)
INTO traffic WITH (lateness = '30 sec');
