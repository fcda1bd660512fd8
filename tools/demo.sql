-- Two toll gates report cars, fifty for each second of their time. For every ten seconds: how many passed, and how fast.

CREATE LOGICAL SOURCE cars (
  at TIMESTAMP NOT NULL,
  gate VARCHAR NOT NULL,
  speed FLOAT64
);

CREATE PHYSICAL SOURCE north FOR cars TYPE Generator ON a SET(
  400 AS `SOURCE`.RATE,
  'clock(''2026-01-01T00:00:00Z'', ''20ms'')' AS `SOURCE`.`field.at`,
  'constant(north)' AS `SOURCE`.`field.gate`,
  'normal(60, 20)' AS `SOURCE`.`field.speed`
);

CREATE PHYSICAL SOURCE south FOR cars TYPE Generator ON b SET(
  400 AS `SOURCE`.RATE,
  'clock(''2026-01-01T00:00:00Z'', ''20ms'')' AS `SOURCE`.`field.at`,
  'constant(south)' AS `SOURCE`.`field.gate`,
  'normal(50, 20)' AS `SOURCE`.`field.speed`
);

CREATE SINK traffic (
  start TIMESTAMP,
  gate VARCHAR,
  cars INT64,
  mean FLOAT64
) TYPE File ON a SET(
  '{folder}/traffic.json' AS `SINK`.FILE_PATH,
  'JSON' AS `SINK`.INPUT_FORMAT
);

CREATE QUERY traffic AS
SELECT start, gate, COUNT(*) AS cars, ROUND(AVG(speed), 1) AS mean
FROM cars
WHERE speed IS NOT NULL
GROUP BY gate
WINDOW TUMBLING(at, SIZE 10 SEC)
INTO traffic;
