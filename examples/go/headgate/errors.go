package headgate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	catalogv1 "headgate.example/go/gen/headgate/catalog/v1"
)

// Reasons that this package or the example looks at. docs/errors.md has all of them; they never change.
const (
	ReasonAlreadyExists     = "ALREADY_EXISTS"
	ReasonNotLeader         = "NOT_LEADER"
	ReasonRevisionCompacted = "REVISION_COMPACTED"
	ReasonUnreachable       = "UNREACHABLE"
	ReasonWatcherTooSlow    = "WATCHER_TOO_SLOW"
)

const domain = "headgate"

// Error is a failed call. Programs decide by Reason, people read Message.
type Error struct {
	Code    codes.Code
	Reason  string
	Message string
	// What the error is about, such as name, kind, or leader.
	Metadata map[string]string
	// Where in a statement the mistake is.
	Problems []*catalogv1.StatementProblem
	// After which time the server asks to try again; 0 where it does not say.
	RetryAfter time.Duration
	cause      error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Reason, e.Message) }

func (e *Error) Unwrap() error { return e.cause }

// Retryable tells whether the same request, with the same request_id, may go through later.
func (e *Error) Retryable() bool {
	return e.Code == codes.Unavailable || e.Reason == ReasonUnreachable
}

// AsError reads the details that the status of a failed call carries. The context is the one that the call was made with.
func AsError(ctx context.Context, err error) *Error {
	failed, _ := status.FromError(err)
	found := &Error{Code: failed.Code(), Message: failed.Message(), cause: err}
	for _, detail := range failed.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == domain {
				found.Reason = detail.GetReason()
				found.Metadata = detail.GetMetadata()
			}
		case *errdetails.RetryInfo:
			found.RetryAfter = detail.GetRetryDelay().AsDuration()
		case *catalogv1.StatementProblem:
			found.Problems = append(found.Problems, detail)
		case *catalogv1.StatementFailure:
			found.Problems = append(found.Problems, detail.GetProblems()...)
		}
	}
	if found.Reason == "" {
		found.Reason = withoutReason(ctx, found.Code)
	}
	return found
}

// withoutReason names a status that no server of ours made: it arose on the way, and where the connection broke the
// call may or may not have happened.
func withoutReason(ctx context.Context, code codes.Code) string {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return "CANCELLED"
	case code == codes.DeadlineExceeded || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "DEADLINE_EXCEEDED"
	case code == codes.Unavailable, code == codes.Unknown, code == codes.Internal, code == codes.Canceled:
		return ReasonUnreachable
	default:
		return code.String()
	}
}
