// SPDX-License-Identifier: Apache-2.0

package service

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/protocol"
)

var rewriteCompat = flag.Bool("rewrite", false, "add missing rows to docs/compat.md and correct their state")

const compatFile = "../../docs/compat.md"

var compatRow = regexp.MustCompile(`^\| (\d+) \| ([A-Z0-9_]+) \| (done|sent|not yet|no) \| (.*) \|$`)

// TestCompatSpeaksTheTruth: docs/compat.md has a row for every request code that RocketMQ knows, a row says
// done exactly when the code is in the table of routes, and the tests and interop cases it names as proof
// exist.
func TestCompatSpeaksTheTruth(t *testing.T) {
	s := newTestService(t, nil)
	served := allRoutes(t, s)
	text, err := os.ReadFile(compatFile)
	if err != nil {
		t.Fatal(err)
	}
	if *rewriteCompat {
		text = []byte(rewriteRows(string(text), served))
		if err := os.WriteFile(compatFile, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rows := map[protocol.Code][]string{}
	for line := range strings.Lines(string(text)) {
		if m := compatRow.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			code, _ := strconv.Atoi(m[1])
			rows[protocol.Code(code)] = m
		}
	}
	tests := testNames(t)
	for _, code := range protocol.Codes() {
		row, ok := rows[code]
		if !ok {
			t.Errorf("%d %s has no row in docs/compat.md", code, code)
			continue
		}
		if row[2] != code.String() {
			t.Errorf("row %d is called %s, the code %s", code, row[2], code)
		}
		if done := row[3] == "done"; done != served[code] { // "sent" are requests of the server to its clients
			t.Errorf("row %d %s says %q, but served is %v", code, code, row[3], served[code])
		}
		checkProof(t, row, tests)
	}
}

// checkProof looks for the names in backquotes: Go tests, or interop cases as client/case.
func checkProof(t *testing.T, row []string, tests map[string]bool) {
	t.Helper()
	names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[4], -1)
	if row[3] == "done" && len(names) == 0 {
		t.Errorf("row %s %s names no test that proves it", row[1], row[2])
	}
	for _, name := range names {
		if strings.HasPrefix(name[1], "Test") && !tests[name[1]] {
			t.Errorf("row %s %s: there is no test %s", row[1], row[2], name[1])
		}
	}
}

func testNames(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.CommandContext(
		t.Context(),
		"grep",
		"-rhoE",
		`^func Test[A-Za-z0-9_]+`,
		"--include=*_test.go",
		"../..",
	).Output()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		names[strings.TrimSpace(strings.TrimPrefix(line, "func "))] = true
	}
	return names
}

func rewriteRows(text string, served map[protocol.Code]bool) string {
	proof := map[string]string{}
	var head []string
	for line := range strings.Lines(text) {
		if m := compatRow.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			proof[m[1]] = m[3] + "\x00" + m[4]
			continue
		}
		head = append(head, strings.TrimRight(line, "\n"))
	}
	var rows []string
	for _, code := range protocol.Codes() {
		state, why, _ := strings.Cut(proof[strconv.Itoa(int(code))], "\x00")
		if state == "" || state == "done" || served[code] {
			state = map[bool]string{true: "done", false: "not yet"}[served[code]]
		}
		rows = append(rows, fmt.Sprintf("| %d | %s | %s | %s |", code, code, state, why))
	}
	for i, line := range head {
		if strings.HasPrefix(line, "| --- | --- | --- | --- |") {
			head = append(head[:i+1], append(rows, head[i+1:]...)...)
			break
		}
	}
	return strings.Join(head, "\n") + "\n"
}
