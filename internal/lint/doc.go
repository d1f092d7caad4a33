// SPDX-License-Identifier: Apache-2.0

// Package lint holds the house rules of docs/architecture.md as Go tests: which package may import which, how
// long files, functions and lines may grow, which calls are banned, and that every exported name is
// documented. It has no other code.
package lint
