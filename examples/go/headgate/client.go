// Package headgate is a thin layer over the generated stubs: connections that notice a dead peer, errors with their
// reason, calls that are repeated where that is safe, and a watch that goes on where it was cut off.
package headgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
)

const (
	// A server takes requests of 16 MiB unless configured otherwise, and so may its answers be; gRPC's own limit is 4.
	maxMessageSize = 16 << 20
	// One attempt; the caller's context bounds all of them together.
	attemptTimeout = 10 * time.Second
	firstDelay     = 100 * time.Millisecond
	longestDelay   = 5 * time.Second
)

// Client calls the coordinator of one cluster. It may be used by many goroutines at once.
type Client struct {
	addresses   []string
	options     []grpc.DialOption
	mutex       sync.Mutex
	current     string
	connections map[string]*grpc.ClientConn
}

// NewClient takes the addresses of one or more coordinators, host:port separated by commas, and the options to dial
// with: transport credentials at the least. It connects with the first call.
func NewClient(addresses string, options ...grpc.DialOption) (*Client, error) {
	client := &Client{connections: map[string]*grpc.ClientConn{}}
	client.options = append([]grpc.DialOption{
		// Servers accept a ping every 5 s. Without pings a watch over a silently broken network would wait for ever.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 5 * time.Second}),
		// gRPC's own back-off grows to two minutes, in which every call would fail at once.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstDelay, Multiplier: 2, Jitter: 0.2, MaxDelay: longestDelay},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
	}, options...)
	for _, address := range strings.Split(addresses, ",") {
		if address = strings.TrimSpace(address); address != "" {
			client.addresses = append(client.addresses, address)
		}
	}
	if len(client.addresses) == 0 {
		return nil, errors.New("no address of a coordinator was given")
	}
	client.current = client.addresses[0]
	return client, nil
}

// Close closes every connection.
func (c *Client) Close() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, connection := range c.connections {
		_ = connection.Close()
	}
	clear(c.connections)
}

// Call calls one method of one service, and again with back-off while that can help and the context allows it:
//
//	headgate.Call(ctx, client, catalogv1.NewQueryServiceClient, catalogv1.QueryServiceClient.GetQuery, request)
//
// A mutation that is repeated must carry a request_id: an attempt whose answer was lost may have happened.
func Call[Service, Request, Response any](
	ctx context.Context,
	client *Client,
	service func(grpc.ClientConnInterface) Service,
	method func(Service, context.Context, Request, ...grpc.CallOption) (Response, error),
	request Request,
) (Response, error) {
	for attempt := 0; ; attempt++ {
		address, connection, err := client.connection()
		var response Response
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, attemptTimeout)
			response, err = method(service(connection), limited, request)
			cancel()
		}
		if err == nil {
			return response, nil
		}
		failure := AsError(ctx, err)
		if !failure.Retryable() && !(failure.Code == codes.DeadlineExceeded && ctx.Err() == nil) {
			return response, failure
		}
		client.moveOn(address, failure)
		if !sleep(ctx, failure.delay(attempt)) {
			return response, failure
		}
	}
}

func (c *Client) connection() (string, *grpc.ClientConn, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if connection, found := c.connections[c.current]; found {
		return c.current, connection, nil
	}
	connection, err := grpc.NewClient(c.current, c.options...)
	if err == nil {
		c.connections[c.current] = connection
	}
	return c.current, connection, err
}

// moveOn leaves an address that could not serve for the leader, where the error names it, else for the next one. It
// does nothing where another goroutine has left that address already.
func (c *Client) moveOn(from string, failure *Error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.current != from {
		return
	}
	if leader := failure.Metadata["leader"]; failure.Reason == ReasonNotLeader && leader != "" {
		c.current = leader
		return
	}
	next := 0
	for index, address := range c.addresses {
		if address == from {
			next = (index + 1) % len(c.addresses)
		}
	}
	c.current = c.addresses[next]
}

// delay is how long to wait before the next attempt: what the server asked for, or a random part of a time that
// doubles, so that clients which failed together do not come back together.
func (e *Error) delay(attempt int) time.Duration {
	if e.RetryAfter > 0 {
		return e.RetryAfter
	}
	limit := min(firstDelay<<min(attempt, 16), longestDelay)
	return rand.N(limit) + time.Millisecond
}

// sleep tells whether the time passed before the context ended.
func sleep(ctx context.Context, duration time.Duration) bool {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
