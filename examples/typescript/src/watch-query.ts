/**
 * Declares a source and a sink, submits a query, watches it until it is RUNNING, prints its story, and drops all of it
 * again.
 *
 *     node dist/watch-query.js localhost:7400
 */
import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";

import { create } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";

import { QueryService } from "./gen/headgate/catalog/v1/query_service_pb.js";
import { type Query, QueryState, SinkType, SourceType } from "./gen/headgate/catalog/v1/resources_pb.js";
import { ApplyBundleRequestSchema, StatementService } from "./gen/headgate/catalog/v1/statement_service_pb.js";
import { HeadgateClient, HeadgateError, Reason } from "./index.js";

const USAGE = `usage: watch-query [options] ADDRESS[,ADDRESS...]
  --name NAME       name of the query; its source and sink are named after it (typescript_example)
  --agent NAME      agent that makes the rows up; not needed where there is only one
  --statement SQL   the query, if another than the example's own
  --timeout SECONDS time for all of it (120)`;

const CLEAN_UP_MS = 15_000;

interface Settings {
  readonly addresses: string;
  readonly name: string;
  readonly agent: string;
  readonly statement: string;
  readonly seconds: number;
}

class Example {
  /** Random, one for each run of the program: what request ids are made of. */
  readonly #run = randomUUID();
  /** The last revision that was seen. */
  #revision = 0n;

  constructor(
    private readonly client: HeadgateClient,
    private readonly settings: Settings,
    private readonly signal: AbortSignal,
  ) {}

  async play(): Promise<void> {
    await this.declare();
    await inAnyCase(
      async () => {
        const query = await this.submit();
        await inAnyCase(
          async () => {
            await this.watchUntilRunning(query);
            await this.tellStory(query);
          },
          // A query that did not get there still holds its name and its slots.
          (signal) => this.drop(query, signal),
        );
      },
      (signal) => this.undeclare(signal),
    );
  }

  /** Makes source and sink in one transaction: all of it or nothing. */
  private async declare(): Promise<void> {
    const { name, agent } = this.settings;
    const schema = { fields: [{ name: "sensor", type: "INT32" }, { name: "value", type: "FLOAT64" }] };
    const logicalSource = { name: `${name}_readings`, schema };
    const physicalSource = {
      name: `${name}_generator`,
      logicalSource: logicalSource.name,
      agent,
      type: SourceType.GENERATOR,
      options: { rate: "10" },
    };
    const sink = { name: `${name}_nowhere`, type: SinkType.VOID, schema };
    const request = create(ApplyBundleRequestSchema, {
      requestId: `${this.#run}-declare`,
      items: [
        { item: { case: "createLogicalSource", value: logicalSource } },
        { item: { case: "createPhysicalSource", value: physicalSource } },
        { item: { case: "createSink", value: sink } },
      ],
    });
    try {
      const { results, revision } = await this.client.call(
        StatementService,
        (statements, options) => statements.applyBundle(request, options),
        this.signal,
      );
      console.log(`declared: ${results.length} resources at revision ${revision}`);
    } catch (thrown) {
      if (!(thrown instanceof HeadgateError && thrown.reason === Reason.ALREADY_EXISTS)) {
        throw thrown;
      }
      console.log("declared before: source and sink are there already");
    }
  }

  private async submit(): Promise<Query> {
    const { name, statement } = this.settings;
    const request = { name, statement, sink: `${name}_nowhere`, requestId: `${this.#run}-create` };
    const { query } = await this.client.call(
      QueryService,
      (queries, options) => queries.createQuery(request, options),
      this.signal,
    );
    if (query === undefined) {
      throw new Error("the answer has no query");
    }
    this.#revision = query.revision;
    console.log(`created: query ${query.name} at revision ${query.revision}, ${QueryState[query.state]}`);
    return query;
  }

  /** Watches from the revision at which the query was created: no change can be missed between the two calls. */
  private async watchUntilRunning(query: Query): Promise<void> {
    for await (const change of this.client.watchQuery(query.name, query.revision, this.signal)) {
      this.#revision = change.revision;
      if (change.kind === "resumed") {
        console.log(`watching again after revision ${change.revision}: ${change.failure.reason}`);
        continue;
      }
      if (change.kind === "gone") {
        throw new Error("somebody dropped the query");
      }
      const { state, waiting, failure } = change.query;
      console.log(`revision ${change.revision}: ${QueryState[state]}${waiting ? `, ${waiting.message}` : ""}`);
      switch (state) {
        case QueryState.RUNNING:
          return;
        case QueryState.FAILED:
          throw new Error(`the query failed: ${failure?.reason}: ${failure?.message}`);
        case QueryState.STOPPED:
        case QueryState.TERMINATED:
          throw new Error("the query ended before it was seen RUNNING");
      }
    }
    throw new Error("the watch ended");
  }

  private async tellStory(query: Query): Promise<void> {
    let pageToken = "";
    do {
      const page = await this.client.call(
        QueryService,
        (queries, options) => queries.getStory({ uid: query.uid, pageToken }, options),
        this.signal,
      );
      for (const { fragment, toState, cause } of page.entries) {
        console.log(`story: ${fragment > 0 ? `fragment ${fragment}` : "query"} is ${toState}: ${cause}`);
      }
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
  }

  /** Drops the query and waits until its name is free. */
  private async drop(query: Query, signal: AbortSignal): Promise<void> {
    const request = { name: query.name, uid: query.uid, allowMissing: true, requestId: `${this.#run}-drop` };
    await this.client.call(QueryService, (queries, options) => queries.dropQuery(request, options), signal);
    for await (const change of this.client.watchQuery(query.name, this.#revision, signal)) {
      if (change.kind === "gone") {
        console.log(`dropped: the name is free since revision ${change.revision}`);
        return;
      }
    }
  }

  private async undeclare(signal: AbortSignal): Promise<void> {
    const { name } = this.settings;
    const request = create(ApplyBundleRequestSchema, {
      requestId: `${this.#run}-undeclare`,
      items: [
        { item: { case: "dropSink", value: { name: `${name}_nowhere` } } },
        { item: { case: "dropPhysicalSource", value: { name: `${name}_generator` } } },
        { item: { case: "dropLogicalSource", value: { name: `${name}_readings` } } },
      ],
    });
    await this.client.call(
      StatementService,
      (statements, options) => statements.applyBundle(request, options),
      signal,
    );
  }
}

/** Cleans up, in a time of its own, whether or not the work succeeded. Where both fail, the first failure matters. */
async function inAnyCase(work: () => Promise<void>, cleanUp: (signal: AbortSignal) => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (thrown) {
    try {
      await cleanUp(AbortSignal.timeout(CLEAN_UP_MS));
    } catch (second) {
      console.error(`not cleaned up: ${second}`);
    }
    throw thrown;
  }
  await cleanUp(AbortSignal.timeout(CLEAN_UP_MS));
}

function settingsOf(given: string[]): Settings | undefined {
  try {
    const { values, positionals } = parseArgs({
      args: given,
      allowPositionals: true,
      options: {
        name: { type: "string", default: "typescript_example" },
        agent: { type: "string", default: "" },
        statement: { type: "string" },
        timeout: { type: "string", default: "120" },
      },
    });
    const [addresses, ...more] = positionals;
    const { name, agent, timeout } = values;
    const seconds = Number(timeout);
    if (addresses === undefined || more.length > 0 || !(seconds > 0)) {
      return undefined;
    }
    const statement = values.statement ?? `SELECT sensor, value FROM ${name}_readings WHERE value > 0.5`;
    return { addresses, name, agent, statement, seconds };
  } catch {
    return undefined;
  }
}

/** Tells a person what went wrong, with the place in the statement where the server named one. */
function explain(thrown: unknown): number {
  if (!(thrown instanceof HeadgateError)) {
    console.error(thrown instanceof Error ? thrown.message : thrown);
    return 1;
  }
  console.error(`${thrown.reason} (${Code[thrown.code]}): ${thrown.message}`);
  for (const { excerpt, suggestion } of thrown.problems) {
    console.error(excerpt);
    if (suggestion !== "") {
      console.error(suggestion);
    }
  }
  return thrown.problems.length > 0 ? 3 : 1;
}

/** The exit code: 0 for a query that ran, 1 where something failed, 2 for wrong arguments, 3 for a refused query. */
async function main(): Promise<number> {
  const settings = settingsOf(process.argv.slice(2));
  if (settings === undefined) {
    console.error(USAGE);
    return 2;
  }
  const ending = new AbortController();
  const timer = setTimeout(() => ending.abort(), settings.seconds * 1000);
  process.once("SIGINT", () => ending.abort());
  // For a server with TLS: new HeadgateClient(settings.addresses, { tls: true }).
  const client = new HeadgateClient(settings.addresses);
  try {
    await new Example(client, settings, ending.signal).play();
    return 0;
  } catch (thrown) {
    return explain(thrown);
  } finally {
    clearTimeout(timer);
    client.close();
  }
}

process.exitCode = await main();
