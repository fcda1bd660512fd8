import assert from "node:assert/strict";
import { createServer, type Http2Server, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";

import { create, type DescMessage, type MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";

import { ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { QueryService } from "./gen/headgate/catalog/v1/query_service_pb.js";
import { QuerySchema } from "./gen/headgate/catalog/v1/resources_pb.js";
import { type WatchResponse, WatchResponseSchema, WatchService } from "./gen/headgate/catalog/v1/watch_service_pb.js";
import { HeadgateClient, HeadgateError, Reason } from "./index.js";

/**
 * Answers each call with the next step of its script. What a real coordinator does is tested from the outside; this is
 * for refusals that one cannot be made to give at a chosen moment.
 */
class Scripted {
  calls = 0;
  readonly asked: bigint[] = [];

  constructor(
    /** Errors that getQuery answers, then the query. */
    private readonly errors: readonly ConnectError[],
    /** What each watch sends, and how it breaks: with an error, by cutting the connection, or by its end. */
    private readonly watches: readonly { send: WatchResponse[]; end?: ConnectError | "cut" }[] = [],
  ) {}

  async serve(context: TestContext): Promise<string> {
    const sessions = new Set<ServerHttp2Session>();
    const cut = (): void => sessions.forEach((one) => one.destroy());
    const server: Http2Server = createServer(
      connectNodeAdapter({
        routes: (router) => {
          router.rpc(QueryService.method.getQuery, ({ name }) => {
            const error = this.errors[this.calls++];
            if (error !== undefined) {
              throw error;
            }
            return { query: { name } };
          });
          const script = this;
          router.rpc(WatchService.method.watch, async function* ({ fromRevision }) {
            const turn = script.watches[script.asked.length];
            script.asked.push(fromRevision);
            if (turn === undefined) {
              throw refusal(Code.PermissionDenied, "SCRIPT_IS_OVER");
            }
            yield* turn.send;
            if (turn.end === "cut") {
              // After what was sent has left.
              await new Promise((resolve) => setTimeout(resolve, 50));
              cut();
            } else if (turn.end !== undefined) {
              throw turn.end;
            }
          });
        },
      }),
    );
    server.on("session", (session) => sessions.add(session.on("close", () => sessions.delete(session))));
    context.after(() => {
      cut();
      server.close();
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return `127.0.0.1:${(server.address() as AddressInfo).port}`;
  }
}

function refusal(
  code: Code,
  reason: string,
  ...details: { desc: DescMessage; value: MessageInitShape<DescMessage> }[]
): ConnectError {
  const info = { desc: ErrorInfoSchema, value: { domain: "headgate", reason } };
  return new ConnectError("told for a test", code, undefined, [info, ...details]);
}

function connect(context: TestContext, addresses: string): { client: HeadgateClient; signal: AbortSignal } {
  const client = new HeadgateClient(addresses);
  context.after(() => client.close());
  return { client, signal: AbortSignal.timeout(30_000) };
}

async function getQuery(context: TestContext, addresses: string): Promise<void> {
  const { client, signal } = connect(context, addresses);
  await client.call(QueryService, (queries, options) => queries.getQuery({ name: "slow" }, options), signal);
}

test("a call is repeated after the delay that the server asks for", async (context) => {
  const retry = { desc: RetryInfoSchema, value: { retryDelay: durationFromMs(20) } };
  const overloaded = refusal(Code.Unavailable, "OVERLOADED", retry);
  const script = new Scripted([overloaded, overloaded]);
  await getQuery(context, await script.serve(context));
  assert.equal(script.calls, 3);
  assert.equal(HeadgateError.from(overloaded, new AbortController().signal).retryAfterMs, 20);
});

test("a refusal that stays is not repeated", async (context) => {
  const script = new Scripted([refusal(Code.ResourceExhausted, "INSUFFICIENT_CAPACITY")]);
  await assert.rejects(getQuery(context, await script.serve(context)), { reason: "INSUFFICIENT_CAPACITY" });
  assert.equal(script.calls, 1);
});

test("the reason of another domain is not ours", () => {
  const foreign = { desc: ErrorInfoSchema, value: { domain: "proxy", reason: "NO_ROUTE" } };
  const thrown = new ConnectError("", Code.NotFound, undefined, [foreign]);
  assert.equal(HeadgateError.from(thrown, new AbortController().signal).reason, "NotFound");
});

test("the next address is tried where one is dead", async (context) => {
  const script = new Scripted([]);
  await getQuery(context, `127.0.0.1:1,${await script.serve(context)}`);
  assert.equal(script.calls, 1);
});

const resource = { resource: { case: "query" as const, value: create(QuerySchema, { name: "slow" }) } };

function events(revision: bigint, current?: typeof resource): WatchResponse {
  const value = { revision, events: [current ? { current } : {}] };
  return create(WatchResponseSchema, { message: { case: "events", value } });
}

function snapshot(revision: bigint, complete: boolean, ...resources: (typeof resource)[]): WatchResponse {
  return create(WatchResponseSchema, { message: { case: "snapshot", value: { revision, complete, resources } } });
}

function bookmark(revision: bigint): WatchResponse {
  return create(WatchResponseSchema, { message: { case: "bookmark", value: { revision } } });
}

/** The revisions of all changes, or "gone", until the script is over. */
async function watched(context: TestContext, script: Scripted, after: bigint): Promise<(bigint | "gone")[]> {
  const { client, signal } = connect(context, await script.serve(context));
  const seen: (bigint | "gone")[] = [];
  const watching = async (): Promise<void> => {
    for await (const change of client.watchQuery("slow", after, signal)) {
      if (change.kind !== "resumed") {
        seen.push(change.kind === "gone" ? "gone" : change.revision);
      }
    }
  };
  await assert.rejects(watching(), { reason: "SCRIPT_IS_OVER" });
  return seen;
}

test("a watch resumes after what it has seen", async (context) => {
  const script = new Scripted([], [
    { send: [events(8n, resource), bookmark(12n)], end: "cut" },
    { send: [events(13n, resource)], end: refusal(Code.Aborted, Reason.WATCHER_TOO_SLOW) },
    { send: [events(14n)] },
  ]);
  assert.deepEqual(await watched(context, script, 7n), [8n, 13n, "gone"]);
  assert.deepEqual(script.asked, [7n, 12n, 13n, 14n]);
});

test("a watch whose history is gone begins with the state", async (context) => {
  const compacted = refusal(Code.OutOfRange, Reason.REVISION_COMPACTED);
  const script = new Scripted([], [
    { send: [], end: compacted },
    // Cut off between two parts: it may not be resumed from, and says nothing about the next one.
    { send: [snapshot(20n, false, resource)], end: "cut" },
    { send: [snapshot(21n, true), events(22n, resource)], end: "cut" },
    { send: [], end: compacted },
    { send: [snapshot(30n, false, resource), snapshot(30n, true)] },
  ]);
  assert.deepEqual(await watched(context, script, 7n), [20n, "gone", 22n, 30n]);
  assert.deepEqual(script.asked, [7n, 0n, 0n, 22n, 0n, 30n]);
});
