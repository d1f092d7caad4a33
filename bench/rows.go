// SPDX-License-Identifier: Apache-2.0

package main

// row is one workload of design.md's table; goals are what one message may cost roquet.
type row struct {
	name     string
	args     []string
	sync     bool    // also compared with the peer in SYNC_FLUSH
	prepare  *row    // run before, not reported: the backlog of a pull
	goalCPU  float64 // broker CPU, µs a message
	goalP99  float64 // ms, 0 = none
	goalRate float64 // times the peer's ASYNC_FLUSH rate, 0 = none

	goalShare float64 // of the peer's CPU, instead of goalCPU
}

var rows = []row{
	{name: "send 1 caller", args: []string{"-mode", "send", "-conns", "1", "-window", "1", "-topic", "b1"}, sync: true, goalCPU: 130},
	{name: "send 64 callers", args: []string{"-mode", "send", "-conns", "64", "-window", "1", "-topic", "b2"}, sync: true, goalCPU: 16},
	{
		name: "send 8x64", args: []string{"-mode", "send", "-conns", "8", "-window", "64", "-topic", "b3"}, sync: true,
		goalCPU: 4.5, goalP99: 8, goalRate: 4,
	},
	{name: "send 8x64 1KiB", args: []string{"-mode", "send", "-conns", "8", "-window", "64", "-size", "1024", "-topic", "b4"}, goalCPU: 7},
	{name: "send batch 32x1KiB", args: []string{"-mode", "batch", "-conns", "8", "-window", "8", "-size", "1024", "-topic", "b5"}, goalCPU: 3},
	{
		name: "pull backlog", args: []string{"-mode", "pull", "-topic", "b6", "-secs", "30"}, goalCPU: 0.8,
		prepare: &row{args: []string{"-mode", "batch", "-conns", "8", "-window", "8", "-topic", "b6", "-warm", "0", "-secs", "20", "-max", "3000000"}},
	},
	{
		name: "tail 5000/s", args: []string{"-mode", "tail", "-rate", "5000", "-topic", "b7"}, goalCPU: 40, goalP99: 2,
		prepare: &row{args: []string{"-mode", "send", "-conns", "1", "-window", "8", "-topic", "b7", "-secs", "1", "-warm", "0"}},
	},
	{name: "send 2000 topics", args: []string{
		"-mode", "send", "-conns", "8", "-window", "64", "-topics", "2000", "-queues", "4",
		"-topic", "b8-", "-warm", "6",
	}, goalCPU: 5.2},
}
