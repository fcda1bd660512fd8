/**
 * A thin layer over the generated code: connections that notice a dead peer, errors with their reason, calls that are
 * repeated where that is safe, and a watch that goes on where it was cut off. Services and messages are in gen/.
 */
export { HeadgateClient } from "./client.js";
export { HeadgateError, Reason } from "./errors.js";
export type { Change } from "./watch.js";
