// SPDX-License-Identifier: Apache-2.0

// Package conformance shows that the three doors of a running server (remoting, gRPC, REST) are doors of one
// broker. It has no code but tests:
//
//   - scenario_test.go: the scripts of testdata, each run through every door, give one transcript;
//   - pairs_test.go: a message of any kind sent by one door is received by each other one, whole;
//   - model_test.go: random scripts, with kill -9 of the server among their steps, against a model in memory;
//   - order_test.go: histories of orderly consumers that fail and of a server that restarts, and a checker.
package conformance
