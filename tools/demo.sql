-- Two toll gates report cars; every second, the highways on which traffic has been slow for five minutes are written.

CREATE LOGICAL SOURCE cars (
  creationTS TIMESTAMP NOT NULL,
  highway INT32 NOT NULL,
  speed FLOAT32
);

CREATE PHYSICAL SOURCE gate_north FOR cars TYPE Generator ON a SET(
  100 AS `SOURCE`.RATE,
  'now()' AS `SOURCE`.`field.creationTS`,
  'uniform(1, 9)' AS `SOURCE`.`field.highway`,
  'normal(60, 20)' AS `SOURCE`.`field.speed`
);

CREATE PHYSICAL SOURCE gate_south FOR cars TYPE Generator ON b SET(
  100 AS `SOURCE`.RATE,
  'now()' AS `SOURCE`.`field.creationTS`,
  'uniform(1, 9)' AS `SOURCE`.`field.highway`,
  'normal(50, 20)' AS `SOURCE`.`field.speed`
);

CREATE SINK slow_highways (
  start TIMESTAMP,
  end TIMESTAMP,
  highway INT32,
  avgSpeed FLOAT64
) TYPE File ON c SET(
  'slow_highways.csv' AS `SINK`.FILE_PATH,
  'CSV' AS `SINK`.INPUT_FORMAT
);

CREATE QUERY slow AS
SELECT start, end, highway, AVG(speed) AS avgSpeed
FROM (SELECT creationTS, highway, speed FROM cars)
GROUP BY (highway)
WINDOW SLIDING(creationTS, SIZE 5 MINUTES, ADVANCE BY 1 SEC)
HAVING avgSpeed < FLOAT32(40)
INTO slow_highways;
