// SPDX-License-Identifier: Apache-2.0

package service

import (
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/remoting"
)

// lanes are the bounds on work in flight. Inline lanes run on the connection's reader: their processors do
// not block. Pooled lanes have a few goroutines: their processors may read from the disk. The names are the
// original's thread pools.
type lanes struct {
	send, pull, ack, client, names *remoting.Lane // inline
	admin, query                   *remoting.Lane // pooled
}

// Capacities that the original has for its queues. Source: BrokerConfig.java.
const (
	ackCapacity    = 100_000
	clientCapacity = 1_000_000
	namesCapacity  = 100_000
	adminCapacity  = 10_000
	queryCapacity  = 20_000
	pooledWorkers  = 8
)

func newLanes(cfg *config.Client, prefix string) *lanes {
	lane := func(name string, calls, workers int) *remoting.Lane {
		return remoting.NewLane(remoting.LaneConfig{
			Name: prefix + name, MaxCalls: calls, Workers: workers, MaxWait: cfg.SendTimeout,
		})
	}
	return &lanes{
		send: remoting.NewLane(remoting.LaneConfig{
			Name: prefix + "send", MaxCalls: cfg.SendQueueCount, MaxBytes: cfg.SendQueueBytes,
			MaxWait: cfg.SendTimeout,
		}),
		pull: lane("pull", cfg.PullQueueCount, 0), ack: lane("ack", ackCapacity, 0),
		client: lane("client", clientCapacity, 0), names: lane("names", namesCapacity, 0),
		admin: lane("admin", adminCapacity, pooledWorkers), query: lane("query", queryCapacity, pooledWorkers),
	}
}
