// Command watch-query declares a source and a sink, submits a query, watches it until it is RUNNING, prints its story,
// and drops all of it again.
//
//	go run ./cmd/watch-query localhost:7400
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	catalogv1 "headgate.example/go/gen/headgate/catalog/v1"
	"headgate.example/go/headgate"
)

const cleanUpTimeout = 15 * time.Second

type settings struct {
	addresses string
	name      string
	agent     string
	statement string
	timeout   time.Duration
}

func main() {
	os.Exit(run())
}

// run answers the exit code: 0 for a query that ran, 1 where something failed, 2 for wrong arguments, 3 where the
// coordinator refused the query.
func run() int {
	wanted, err := arguments(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, wanted.timeout)
	defer cancel()

	// For a server with TLS: credentials.NewClientTLSFromFile("ca.pem", "").
	client, err := headgate.NewClient(wanted.addresses, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer client.Close()

	example := &example{settings: wanted, client: client, run: rand.Text()}
	if err := example.play(ctx); err != nil {
		return explain(err)
	}
	return 0
}

func arguments(given []string) (settings, error) {
	var wanted settings
	flags := flag.NewFlagSet("watch-query", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: watch-query [options] ADDRESS[,ADDRESS...]")
		flags.PrintDefaults()
	}
	flags.StringVar(&wanted.name, "name", "go_example", "name of the query; its source and sink are named after it")
	flags.StringVar(&wanted.agent, "agent", "", "agent that makes the rows up; not needed where there is only one")
	flags.StringVar(&wanted.statement, "statement", "", "the query, if another than the example's own")
	flags.DurationVar(&wanted.timeout, "timeout", 2*time.Minute, "time for all of it")
	if err := flags.Parse(given); err != nil {
		return wanted, err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return wanted, errors.New("one argument is needed")
	}
	wanted.addresses = flags.Arg(0)
	if wanted.statement == "" {
		wanted.statement = fmt.Sprintf("SELECT sensor, value FROM %s_readings WHERE value > 0.5", wanted.name)
	}
	return wanted, nil
}

type example struct {
	settings
	client *headgate.Client
	// Random, one for each run of the program: what request ids are made of.
	run string
	// The last revision that was seen.
	revision uint64
}

func (e *example) play(ctx context.Context) error {
	if err := e.declare(ctx); err != nil {
		return err
	}
	return inAnyCase(ctx, e.playQuery, e.undeclare)
}

func (e *example) playQuery(ctx context.Context) error {
	query, err := e.submit(ctx)
	if err != nil {
		return err
	}
	work := func(ctx context.Context) error {
		if err := e.watchUntilRunning(ctx, query); err != nil {
			return err
		}
		return e.tellStory(ctx, query)
	}
	// A query that did not get there still holds its name and its slots.
	return inAnyCase(ctx, work, func(ctx context.Context) error { return e.drop(ctx, query) })
}

// inAnyCase cleans up, in a time of its own, whether or not the work succeeded. Where both fail, the first failure
// matters.
func inAnyCase(ctx context.Context, work, cleanUp func(context.Context) error) error {
	failure := work(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	err := cleanUp(ctx)
	if failure == nil {
		return err
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "not cleaned up:", err)
	}
	return failure
}

// declare makes source and sink in one transaction: all of it or nothing.
func (e *example) declare(ctx context.Context) error {
	schema := &catalogv1.Schema{Fields: []*catalogv1.Field{
		{Name: "sensor", Type: "INT32"},
		{Name: "value", Type: "FLOAT64"},
	}}
	response, err := headgate.Call(ctx, e.client,
		catalogv1.NewStatementServiceClient, catalogv1.StatementServiceClient.ApplyBundle,
		&catalogv1.ApplyBundleRequest{
			RequestId: e.run + "-declare",
			Items: []*catalogv1.BundleItem{
				{Item: &catalogv1.BundleItem_CreateLogicalSource{CreateLogicalSource: &catalogv1.CreateLogicalSourceRequest{
					Name:   e.name + "_readings",
					Schema: schema,
				}}},
				{Item: &catalogv1.BundleItem_CreatePhysicalSource{CreatePhysicalSource: &catalogv1.CreatePhysicalSourceRequest{
					Name:          e.name + "_generator",
					LogicalSource: e.name + "_readings",
					Agent:         e.agent,
					Type:          catalogv1.SourceType_SOURCE_TYPE_GENERATOR,
					Options:       map[string]string{"rate": "10"},
				}}},
				{Item: &catalogv1.BundleItem_CreateSink{CreateSink: &catalogv1.CreateSinkRequest{
					Name:   e.name + "_nowhere",
					Type:   catalogv1.SinkType_SINK_TYPE_VOID,
					Schema: schema,
				}}},
			},
		})
	var failure *headgate.Error
	if errors.As(err, &failure) && failure.Reason == headgate.ReasonAlreadyExists {
		fmt.Println("declared before: source and sink are there already")
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Printf("declared: %d resources at revision %d\n", len(response.GetResults()), response.GetRevision())
	return nil
}

func (e *example) submit(ctx context.Context) (*catalogv1.Query, error) {
	response, err := headgate.Call(ctx, e.client,
		catalogv1.NewQueryServiceClient, catalogv1.QueryServiceClient.CreateQuery,
		&catalogv1.CreateQueryRequest{
			Name:      e.name,
			Statement: e.statement,
			Sink:      e.name + "_nowhere",
			RequestId: e.run + "-create",
		})
	if err != nil {
		return nil, err
	}
	query := response.GetQuery()
	e.revision = query.GetRevision()
	fmt.Printf("created: query %s at revision %d, %s\n", query.GetName(), query.GetRevision(), stateOf(query))
	return query, nil
}

// watchUntilRunning watches from the revision at which the query was created: no change can be missed between the two
// calls.
func (e *example) watchUntilRunning(ctx context.Context, query *catalogv1.Query) error {
	for change, err := range e.client.WatchQuery(ctx, query.GetName(), query.GetRevision()) {
		if err != nil {
			return err
		}
		e.revision = change.Revision
		if change.Resumed != nil {
			fmt.Printf("watching again after revision %d: %s\n", change.Revision, change.Resumed.Reason)
			continue
		}
		if change.Query == nil {
			return errors.New("somebody dropped the query")
		}
		fmt.Printf("revision %d: %s%s\n", change.Revision, stateOf(change.Query), waitingFor(change.Query))
		switch change.Query.GetState() {
		case catalogv1.QueryState_QUERY_STATE_RUNNING:
			return nil
		case catalogv1.QueryState_QUERY_STATE_FAILED:
			failure := change.Query.GetFailure()
			return fmt.Errorf("the query failed: %s: %s", failure.GetReason(), failure.GetMessage())
		case catalogv1.QueryState_QUERY_STATE_STOPPED, catalogv1.QueryState_QUERY_STATE_TERMINATED:
			return errors.New("the query ended before it was seen RUNNING")
		}
	}
	return ctx.Err()
}

func (e *example) tellStory(ctx context.Context, query *catalogv1.Query) error {
	request := &catalogv1.GetStoryRequest{Uid: query.GetUid()}
	for {
		page, err := headgate.Call(ctx, e.client,
			catalogv1.NewQueryServiceClient, catalogv1.QueryServiceClient.GetStory, request)
		if err != nil {
			return err
		}
		for _, entry := range page.GetEntries() {
			who := "query"
			if entry.GetFragment() > 0 {
				who = fmt.Sprintf("fragment %d", entry.GetFragment())
			}
			fmt.Printf("story: %s is %s: %s\n", who, entry.GetToState(), entry.GetCause())
		}
		if page.GetNextPageToken() == "" {
			return nil
		}
		request.PageToken = page.GetNextPageToken()
	}
}

// drop drops the query and waits until its name is free.
func (e *example) drop(ctx context.Context, query *catalogv1.Query) error {
	_, err := headgate.Call(ctx, e.client,
		catalogv1.NewQueryServiceClient, catalogv1.QueryServiceClient.DropQuery,
		&catalogv1.DropQueryRequest{
			Name:         query.GetName(),
			Uid:          query.GetUid(),
			AllowMissing: true,
			RequestId:    e.run + "-drop",
		})
	if err != nil {
		return err
	}
	for change, err := range e.client.WatchQuery(ctx, query.GetName(), e.revision) {
		if err != nil {
			return err
		}
		if change.Resumed == nil && change.Query == nil {
			fmt.Printf("dropped: the name is free since revision %d\n", change.Revision)
			return nil
		}
	}
	return ctx.Err()
}

func (e *example) undeclare(ctx context.Context) error {
	_, err := headgate.Call(ctx, e.client,
		catalogv1.NewStatementServiceClient, catalogv1.StatementServiceClient.ApplyBundle,
		&catalogv1.ApplyBundleRequest{
			RequestId: e.run + "-undeclare",
			Items: []*catalogv1.BundleItem{
				{Item: &catalogv1.BundleItem_DropSink{
					DropSink: &catalogv1.DropSinkRequest{Name: e.name + "_nowhere"},
				}},
				{Item: &catalogv1.BundleItem_DropPhysicalSource{
					DropPhysicalSource: &catalogv1.DropPhysicalSourceRequest{Name: e.name + "_generator"},
				}},
				{Item: &catalogv1.BundleItem_DropLogicalSource{
					DropLogicalSource: &catalogv1.DropLogicalSourceRequest{Name: e.name + "_readings"},
				}},
			},
		})
	return err
}

func stateOf(query *catalogv1.Query) string {
	return strings.TrimPrefix(query.GetState().String(), "QUERY_STATE_")
}

func waitingFor(query *catalogv1.Query) string {
	if message := query.GetWaiting().GetMessage(); message != "" {
		return ", " + message
	}
	return ""
}

// explain tells a person what went wrong, with the place in the statement where the server named one.
func explain(err error) int {
	var failure *headgate.Error
	if !errors.As(err, &failure) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintf(os.Stderr, "%s (%s): %s\n", failure.Reason, failure.Code, failure.Message)
	for _, problem := range failure.Problems {
		fmt.Fprintln(os.Stderr, problem.GetExcerpt())
		if problem.GetSuggestion() != "" {
			fmt.Fprintln(os.Stderr, problem.GetSuggestion())
		}
	}
	if len(failure.Problems) > 0 {
		return 3
	}
	return 1
}
