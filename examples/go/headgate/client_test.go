package headgate

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	catalogv1 "headgate.example/go/gen/headgate/catalog/v1"
)

// scripted answers each call with the next step of its script. What a real coordinator does is tested from the outside;
// this is for refusals that one cannot be made to give at a chosen moment.
type scripted struct {
	catalogv1.UnimplementedQueryServiceServer
	catalogv1.UnimplementedWatchServiceServer
	address string
	mutex   sync.Mutex
	// Errors that GetQuery answers, then the query.
	errors []error
	calls  int
	// What each Watch sends before it breaks.
	watches [][]*catalogv1.WatchResponse
	breaks  []error
	asked   []uint64
}

func serve(t *testing.T, server *scripted) *scripted {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.address = listener.Addr().String()
	made := grpc.NewServer()
	catalogv1.RegisterQueryServiceServer(made, server)
	catalogv1.RegisterWatchServiceServer(made, server)
	go func() { _ = made.Serve(listener) }()
	t.Cleanup(made.Stop)
	return server
}

func (s *scripted) GetQuery(_ context.Context, request *catalogv1.GetQueryRequest) (*catalogv1.GetQueryResponse, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.calls++
	if s.calls <= len(s.errors) {
		return nil, s.errors[s.calls-1]
	}
	return &catalogv1.GetQueryResponse{Query: &catalogv1.Query{Name: request.GetName()}}, nil
}

func (s *scripted) Watch(
	request *catalogv1.WatchRequest, stream grpc.ServerStreamingServer[catalogv1.WatchResponse],
) error {
	s.mutex.Lock()
	turn := len(s.asked)
	s.asked = append(s.asked, request.GetFromRevision())
	s.mutex.Unlock()
	if turn >= len(s.watches) {
		return refusal(codes.PermissionDenied, "SCRIPT_IS_OVER")
	}
	for _, message := range s.watches[turn] {
		if err := stream.Send(message); err != nil {
			return err
		}
	}
	return s.breaks[turn]
}

func refusal(code codes.Code, reason string, details ...protoadapt.MessageV1) error {
	info := &errdetails.ErrorInfo{Domain: domain, Reason: reason}
	made, err := status.New(code, "told for a test").WithDetails(append([]protoadapt.MessageV1{info}, details...)...)
	if err != nil {
		return err
	}
	return made.Err()
}

func connect(t *testing.T, addresses string) (context.Context, *Client) {
	t.Helper()
	client, err := NewClient(addresses, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx, client
}

func getQuery(ctx context.Context, client *Client) error {
	request := &catalogv1.GetQueryRequest{Name: "slow"}
	_, err := Call(ctx, client, catalogv1.NewQueryServiceClient, catalogv1.QueryServiceClient.GetQuery, request)
	return err
}

func TestACallIsRepeatedAfterTheDelayThatTheServerAsksFor(t *testing.T) {
	retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(20 * time.Millisecond)}
	overloaded := refusal(codes.Unavailable, "OVERLOADED", retry)
	if found := AsError(t.Context(), overloaded).delay(9); found != 20*time.Millisecond {
		t.Errorf("it would wait %s", found)
	}
	server := serve(t, &scripted{errors: []error{overloaded, overloaded}})
	ctx, client := connect(t, server.address)
	if err := getQuery(ctx, client); err != nil || server.calls != 3 {
		t.Errorf("%v after %d calls", err, server.calls)
	}
}

func TestARefusalThatStaysIsNotRepeated(t *testing.T) {
	server := serve(t, &scripted{errors: []error{refusal(codes.ResourceExhausted, "INSUFFICIENT_CAPACITY")}})
	ctx, client := connect(t, server.address)
	var failure *Error
	if err := getQuery(ctx, client); !errors.As(err, &failure) || failure.Reason != "INSUFFICIENT_CAPACITY" {
		t.Errorf("answered %v", err)
	}
	if server.calls != 1 {
		t.Errorf("%d calls", server.calls)
	}
}

func TestTheReasonOfAnotherDomainIsNotOurs(t *testing.T) {
	foreign, err := status.New(codes.NotFound, "").WithDetails(&errdetails.ErrorInfo{Domain: "proxy", Reason: "NO_ROUTE"})
	if err != nil {
		t.Fatal(err)
	}
	if found := AsError(t.Context(), foreign.Err()).Reason; found != "NotFound" {
		t.Errorf("reason %s", found)
	}
}

func TestTheNextAddressIsTriedWhereOneIsDead(t *testing.T) {
	server := serve(t, &scripted{})
	ctx, client := connect(t, "127.0.0.1:1,"+server.address)
	if err := getQuery(ctx, client); err != nil {
		t.Error(err)
	}
}

func event(revision uint64, query *catalogv1.Query) *catalogv1.WatchResponse {
	made := &catalogv1.WatchEvent{}
	if query != nil {
		made.Current = &catalogv1.Resource{Resource: &catalogv1.Resource_Query{Query: query}}
	}
	return &catalogv1.WatchResponse{Message: &catalogv1.WatchResponse_Events{
		Events: &catalogv1.WatchEvents{Revision: revision, Events: []*catalogv1.WatchEvent{made}},
	}}
}

func snapshot(revision uint64, complete bool, queries ...*catalogv1.Query) *catalogv1.WatchResponse {
	made := &catalogv1.WatchSnapshot{Revision: revision, Complete: complete}
	for _, query := range queries {
		made.Resources = append(made.Resources, &catalogv1.Resource{Resource: &catalogv1.Resource_Query{Query: query}})
	}
	return &catalogv1.WatchResponse{Message: &catalogv1.WatchResponse_Snapshot{Snapshot: made}}
}

// watched answers the revisions of all changes, those without a query as 0, until the watch ends.
func watched(t *testing.T, server *scripted, after uint64) []uint64 {
	t.Helper()
	ctx, client := connect(t, serve(t, server).address)
	var seen []uint64
	for change, err := range client.WatchQuery(ctx, "slow", after) {
		switch {
		case err != nil && AsError(ctx, err).Reason != "SCRIPT_IS_OVER":
			t.Errorf("ended with %v", err)
		case err == nil && change.Resumed == nil && change.Query == nil:
			seen = append(seen, 0)
		case err == nil && change.Resumed == nil:
			seen = append(seen, change.Revision)
		}
	}
	return seen
}

func TestAWatchResumesAfterWhatItHasSeen(t *testing.T) {
	query := &catalogv1.Query{Name: "slow"}
	bookmark := &catalogv1.WatchResponse{Message: &catalogv1.WatchResponse_Bookmark{
		Bookmark: &catalogv1.WatchBookmark{Revision: 12},
	}}
	server := &scripted{
		watches: [][]*catalogv1.WatchResponse{{event(8, query), bookmark}, {event(13, query)}, {event(14, nil)}},
		breaks: []error{
			status.Error(codes.Unavailable, "the connection broke"),
			refusal(codes.Aborted, ReasonWatcherTooSlow),
			nil,
		},
	}
	if seen := watched(t, server, 7); !slices.Equal(seen, []uint64{8, 13, 0}) {
		t.Errorf("saw %v", seen)
	}
	if !slices.Equal(server.asked, []uint64{7, 12, 13, 14}) {
		t.Errorf("asked from %v", server.asked)
	}
}

func TestAWatchWhoseHistoryIsGoneBeginsWithTheState(t *testing.T) {
	query := &catalogv1.Query{Name: "slow"}
	server := &scripted{
		watches: [][]*catalogv1.WatchResponse{
			nil,
			// Cut off between two parts: it may not be resumed from, and says nothing about the next one.
			{snapshot(20, false, query)},
			{snapshot(21, true), event(22, query)},
			nil,
			{snapshot(30, false, query), snapshot(30, true)},
		},
		breaks: []error{
			refusal(codes.OutOfRange, ReasonRevisionCompacted),
			status.Error(codes.Unavailable, "the connection broke"),
			status.Error(codes.Unavailable, "the connection broke"),
			refusal(codes.OutOfRange, ReasonRevisionCompacted),
			nil,
		},
	}
	if seen := watched(t, server, 7); !slices.Equal(seen, []uint64{20, 0, 22, 30}) {
		t.Errorf("saw %v", seen)
	}
	if !slices.Equal(server.asked, []uint64{7, 0, 0, 22, 0, 30}) {
		t.Errorf("asked from %v", server.asked)
	}
}
