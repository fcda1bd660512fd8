import { durationMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";

import { ErrorInfoSchema, RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import {
  type StatementProblem,
  StatementFailureSchema,
  StatementProblemSchema,
} from "./gen/headgate/catalog/v1/statement_service_pb.js";

/** Reasons that this package or the example looks at. docs/errors.md has all of them; they never change. */
export const Reason = {
  ALREADY_EXISTS: "ALREADY_EXISTS",
  NOT_LEADER: "NOT_LEADER",
  REVISION_COMPACTED: "REVISION_COMPACTED",
  UNREACHABLE: "UNREACHABLE",
  WATCHER_TOO_SLOW: "WATCHER_TOO_SLOW",
} as const;

const DOMAIN = "headgate";

/**
 * Codes of a status that no server of ours made: the connection broke, and the call may or may not have happened. Which
 * of them it is depends on how the connection ended.
 */
const BROKEN = new Set([Code.Unavailable, Code.Unknown, Code.Internal, Code.Aborted, Code.Canceled]);

/** A failed call. Programs decide by `reason`, people read `message`. */
export class HeadgateError extends Error {
  override readonly name = "HeadgateError";

  private constructor(
    readonly code: Code,
    readonly reason: string,
    message: string,
    /** What the error is about, such as name, kind, or leader. */
    readonly metadata: Readonly<Record<string, string>>,
    /** Where in a statement the mistake is. */
    readonly problems: readonly StatementProblem[],
    /** After how many milliseconds the server asks to try again; undefined where it does not say. */
    readonly retryAfterMs: number | undefined,
    cause: unknown,
  ) {
    super(message, { cause });
  }

  /** Reads the details that the status of a failed call carries. `signal` is the one that could end the call. */
  static from(thrown: unknown, signal: AbortSignal): HeadgateError {
    if (thrown instanceof HeadgateError) {
      return thrown;
    }
    const failed = ConnectError.from(thrown);
    const info = failed.findDetails(ErrorInfoSchema).find((one) => one.domain === DOMAIN);
    const retry = failed.findDetails(RetryInfoSchema).find((one) => one.retryDelay !== undefined);
    const problems = [
      ...failed.findDetails(StatementProblemSchema),
      ...failed.findDetails(StatementFailureSchema).flatMap((one) => one.problems),
    ];
    return new HeadgateError(
      failed.code,
      info?.reason ?? withoutReason(failed.code, signal),
      failed.rawMessage,
      info?.metadata ?? {},
      problems,
      retry?.retryDelay && durationMs(retry.retryDelay),
      thrown,
    );
  }

  /** Whether the same request, with the same requestId, may go through later. */
  get retryable(): boolean {
    return this.code === Code.Unavailable || this.reason === Reason.UNREACHABLE;
  }
}

function withoutReason(code: Code, signal: AbortSignal): string {
  if (signal.aborted) {
    return "CANCELLED";
  }
  if (BROKEN.has(code)) {
    return Reason.UNREACHABLE;
  }
  return code === Code.DeadlineExceeded ? "DEADLINE_EXCEEDED" : (Code[code] ?? "UNKNOWN");
}
