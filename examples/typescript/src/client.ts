import type { DescService } from "@bufbuild/protobuf";
import { type CallOptions, type Client, Code, createClient, type Transport } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";

import { HeadgateError, Reason } from "./errors.js";
import { type Change, watchQuery } from "./watch.js";

/** A server takes requests of 16 MiB unless configured otherwise, and so may its answers be. */
const MAX_MESSAGE_BYTES = 16 * 2 ** 20;
/** One attempt; the caller's signal bounds all of them together. */
const ATTEMPT_MS = 10_000;
const FIRST_DELAY_MS = 100;
const LONGEST_DELAY_MS = 5_000;

interface Connection {
  readonly address: string;
  readonly session: Http2SessionManager;
  readonly transport: Transport;
}

/** Calls the coordinator of one cluster. */
export class HeadgateClient {
  readonly #addresses: readonly string[];
  readonly #connections = new Map<string, Connection>();
  readonly #scheme: "http" | "https";
  #current: string;

  /**
   * Takes the addresses of one or more coordinators, host:port separated by commas, and connects with the first call.
   * With `tls`, certificates are those that Node trusts: NODE_EXTRA_CA_CERTS adds one.
   */
  constructor(addresses: string, options: { tls?: boolean } = {}) {
    this.#addresses = addresses.split(",").map((one) => one.trim()).filter((one) => one !== "");
    const [first] = this.#addresses;
    if (first === undefined) {
      throw new TypeError("no address of a coordinator was given");
    }
    this.#current = first;
    this.#scheme = options.tls ? "https" : "http";
  }

  /** Closes every connection. */
  close(): void {
    for (const { session } of this.#connections.values()) {
      session.abort();
    }
    this.#connections.clear();
  }

  /**
   * Calls one method of one service, and again with back-off while that can help and the signal allows it:
   *
   *     client.call(QueryService, (queries, options) => queries.getQuery({ name }, options), signal)
   *
   * A mutation that is repeated must carry a requestId: an attempt whose answer was lost may have happened.
   */
  async call<Service extends DescService, Response>(
    service: Service,
    method: (client: Client<Service>, options: CallOptions) => Promise<Response>,
    signal: AbortSignal,
  ): Promise<Response> {
    for (let attempt = 0; ; attempt++) {
      const connection = this.connection();
      try {
        return await method(createClient(service, connection.transport), { signal, timeoutMs: ATTEMPT_MS });
      } catch (thrown) {
        const failure = HeadgateError.from(thrown, signal);
        if (signal.aborted || !(failure.retryable || failure.code === Code.DeadlineExceeded)) {
          throw failure;
        }
        this.moveOn(connection.address, failure);
        await pause(failure, attempt, signal);
      }
    }
  }

  /**
   * Yields every change of one query after a revision, in order, each once, until the loop is left or the signal ends
   * it. A broken connection is no error: the watch goes on after the last revision that was seen. Where the history
   * after it is gone, the present state is yielded instead of the changes that led to it.
   */
  watchQuery(name: string, after: bigint, signal: AbortSignal): AsyncGenerator<Change, void> {
    return watchQuery(this, name, after, signal);
  }

  /** @internal */
  connection(): Connection {
    let found = this.#connections.get(this.#current);
    if (found === undefined) {
      const baseUrl = `${this.#scheme}://${this.#current}`;
      // Servers accept a ping every 5 s. Without pings a watch over a silently broken network would wait for ever.
      const session = new Http2SessionManager(baseUrl, { pingIntervalMs: 20_000, pingTimeoutMs: 5_000 });
      const transport = createGrpcTransport({ baseUrl, sessionManager: session, readMaxBytes: MAX_MESSAGE_BYTES });
      found = { address: this.#current, session, transport };
      this.#connections.set(this.#current, found);
    }
    return found;
  }

  /**
   * Leaves an address that could not serve for the leader, where the error names it, else for the next one. Does nothing
   * where another call has left that address already.
   *
   * @internal
   */
  moveOn(from: string, failure: HeadgateError): void {
    if (this.#current !== from) {
      return;
    }
    const leader = failure.reason === Reason.NOT_LEADER ? failure.metadata["leader"] : undefined;
    const next = this.#addresses[(this.#addresses.indexOf(from) + 1) % this.#addresses.length];
    this.#current = leader || next || from;
  }
}

/**
 * Waits before the next attempt: as long as the server asked for, or a random part of a time that doubles, so that
 * clients which failed together do not come back together. Throws the failure when the signal ends the wait.
 */
export async function pause(failure: HeadgateError, attempt: number, signal: AbortSignal): Promise<void> {
  const limit = Math.min(FIRST_DELAY_MS * 2 ** attempt, LONGEST_DELAY_MS);
  const ms = failure.retryAfterMs ?? 1 + Math.random() * limit;
  await new Promise<void>((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
    if (signal.aborted) {
      end();
    }
  });
  if (signal.aborted) {
    throw failure;
  }
}
