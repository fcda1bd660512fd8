package headgate

import (
	"context"
	"iter"

	catalogv1 "headgate.example/go/gen/headgate/catalog/v1"
)

// Change is what a watch tells.
type Change struct {
	Revision uint64
	// The query after the change; nil when it is gone.
	Query *catalogv1.Query
	// Set where the connection was lost and the watch goes on after Revision; Query is not set then.
	Resumed *Error
}

// WatchQuery yields every change of one query after a revision, in order, each once, until the loop is left or the
// context ends. A broken connection is no error: the watch goes on after the last revision that was seen. Where the
// history after it is gone, the present state is yielded instead of the changes that led to it.
func (c *Client) WatchQuery(ctx context.Context, name string, after uint64) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		watch := &watch{client: c, name: name, after: after, yield: yield}
		for attempt := 0; ; attempt++ {
			address, failure := watch.once(ctx, &attempt)
			switch {
			case watch.left:
				return
			case failure.Reason == ReasonRevisionCompacted:
				watch.after = 0
			case failure.Retryable() || failure.Reason == ReasonWatcherTooSlow:
				c.moveOn(address, failure)
			default:
				yield(Change{}, failure)
				return
			}
			if !sleep(ctx, failure.delay(attempt)) {
				yield(Change{}, failure)
				return
			}
			if !watch.tell(Change{Revision: watch.after, Resumed: failure}) {
				return
			}
		}
	}
}

type watch struct {
	client *Client
	name   string
	after  uint64
	yield  func(Change, error) bool
	left   bool
	// Whether the snapshot that is being received has the query.
	found bool
}

func (w *watch) tell(change Change) bool {
	w.left = w.left || !w.yield(change, nil)
	return !w.left
}

// once watches until the stream breaks. Whatever arrives proves that the server is back, so attempts count from 0 again.
func (w *watch) once(ctx context.Context, attempt *int) (string, *Error) {
	w.found = false
	address, connection, err := w.client.connection()
	if err != nil {
		return address, AsError(ctx, err)
	}
	stream, err := catalogv1.NewWatchServiceClient(connection).Watch(ctx, &catalogv1.WatchRequest{
		Kinds:        []catalogv1.ResourceKind{catalogv1.ResourceKind_RESOURCE_KIND_QUERY},
		Name:         w.name,
		FromRevision: w.after,
	})
	for err == nil {
		var response *catalogv1.WatchResponse
		if response, err = stream.Recv(); err == nil {
			*attempt = 0
			if !w.take(response) {
				return address, nil
			}
		}
	}
	return address, AsError(ctx, err)
}

// take tells what one message says, and remembers how far the watch has come: a message is complete in itself, so its
// revision is a safe place to resume from. It tells whether the watch goes on.
func (w *watch) take(response *catalogv1.WatchResponse) bool {
	switch message := response.GetMessage().(type) {
	case *catalogv1.WatchResponse_Snapshot:
		return w.takeSnapshot(message.Snapshot)
	case *catalogv1.WatchResponse_Events:
		for _, event := range message.Events.GetEvents() {
			if !w.tell(Change{Revision: message.Events.GetRevision(), Query: event.GetCurrent().GetQuery()}) {
				return false
			}
		}
		w.after = message.Events.GetRevision()
	case *catalogv1.WatchResponse_Bookmark:
		w.after = message.Bookmark.GetRevision()
	}
	return true
}

// takeSnapshot takes one part of a snapshot. Only a whole one may be resumed from, and only a whole one without the query
// says that it is gone.
func (w *watch) takeSnapshot(part *catalogv1.WatchSnapshot) bool {
	for _, resource := range part.GetResources() {
		w.found = true
		if !w.tell(Change{Revision: part.GetRevision(), Query: resource.GetQuery()}) {
			return false
		}
	}
	if !part.GetComplete() {
		return true
	}
	w.after = part.GetRevision()
	gone := !w.found
	w.found = false
	return !gone || w.tell(Change{Revision: part.GetRevision()})
}
