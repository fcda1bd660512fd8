import { createClient } from "@connectrpc/connect";

import { type HeadgateClient, pause } from "./client.js";
import { HeadgateError, Reason } from "./errors.js";
import type { Query } from "./gen/headgate/catalog/v1/resources_pb.js";
import type { Resource } from "./gen/headgate/catalog/v1/statement_service_pb.js";
import { ResourceKind, type WatchResponse, WatchService } from "./gen/headgate/catalog/v1/watch_service_pb.js";

/** What a watch tells. */
export type Change =
  | { readonly kind: "changed"; readonly revision: bigint; readonly query: Query }
  | { readonly kind: "gone"; readonly revision: bigint }
  /** The connection was lost; the watch goes on after `revision`. */
  | { readonly kind: "resumed"; readonly revision: bigint; readonly failure: HeadgateError };

/** See HeadgateClient.watchQuery. */
export async function* watchQuery(
  client: HeadgateClient,
  name: string,
  after: bigint,
  signal: AbortSignal,
): AsyncGenerator<Change, void> {
  const position = new Position(after);
  for (let attempt = 0; ; attempt++) {
    const connection = client.connection();
    position.begin();
    let failure: HeadgateError;
    try {
      const watches = createClient(WatchService, connection.transport);
      const request = { kinds: [ResourceKind.QUERY], name, fromRevision: position.after };
      for await (const response of watches.watch(request, { signal })) {
        // Whatever arrives proves that the server is back.
        attempt = 0;
        yield* position.take(response);
      }
      failure = HeadgateError.from(new Error("the server ended the watch"), signal);
    } catch (thrown) {
      failure = HeadgateError.from(thrown, signal);
    }
    if (failure.reason === Reason.REVISION_COMPACTED) {
      position.after = 0n;
    } else if (failure.retryable || failure.reason === Reason.WATCHER_TOO_SLOW) {
      client.moveOn(connection.address, failure);
    } else {
      throw failure;
    }
    await pause(failure, attempt, signal);
    yield { kind: "resumed", revision: position.after, failure };
  }
}

/**
 * How far a watch has come. A message is complete in itself, so its revision is a safe place to resume from; of a
 * snapshot in parts, only the last is.
 */
class Position {
  /** Whether the snapshot that is being received has the query. */
  #found = false;

  constructor(public after: bigint) {}

  /** A stream begins anew: the rest of a snapshot that was being received does not come. */
  begin(): void {
    this.#found = false;
  }

  *take({ message }: WatchResponse): Generator<Change, void> {
    if (message.case === undefined) {
      return;
    }
    const { revision } = message.value;
    switch (message.case) {
      case "snapshot":
        for (const resource of message.value.resources) {
          this.#found = true;
          yield changeOf(revision, resource);
        }
        if (!message.value.complete) {
          return;
        }
        if (!this.#found) {
          yield { kind: "gone", revision };
        }
        this.#found = false;
        break;
      case "events":
        for (const event of message.value.events) {
          yield changeOf(revision, event.current);
        }
        break;
      case "bookmark":
        break;
    }
    this.after = revision;
  }
}

function changeOf(revision: bigint, current: Resource | undefined): Change {
  const resource = current?.resource;
  return resource?.case === "query" ? { kind: "changed", revision, query: resource.value } : { kind: "gone", revision };
}
