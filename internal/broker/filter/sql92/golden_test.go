// SPDX-License-Identifier: Apache-2.0

package sql92

import (
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/roquetmq/roquet/internal/message"
)

var questionsFile = flag.String("questions", "", "write the questions for testdata/Answers.java.txt into this file")

func encode(set []string) string {
	var props []byte
	for i := 0; i+1 < len(set); i += 2 {
		props = message.AppendProperty(props, set[i], set[i+1])
	}
	return string(props)
}

// evaluate returns the outcome as golden.txt writes it.
func (e *Expression) evaluate(properties string) byte {
	return map[truth]byte{unknown: 'N', noTruth: 'X', isTrue: 'T', isFalse: 'F'}[e.about(properties)]
}

func answers(e *Expression, sets []string) string {
	var b strings.Builder
	for _, set := range sets {
		b.WriteByte(e.evaluate(set))
	}
	return b.String()
}

// TestGolden compares with the original's answers, and the questions with the generator's.
func TestGolden(t *testing.T) {
	t.Parallel()
	asked := questionsText(t)
	if *questionsFile != "" {
		if err := os.WriteFile(*questionsFile, []byte(asked), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	golden, err := os.ReadFile("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	var sets []string
	var found strings.Builder
	count := map[string]int{}
	for line := range strings.Lines(string(golden)) {
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Split(line, "\t")
		for i, f := range fields {
			fields[i] = unescaper.Replace(f)
		}
		switch fields[0] {
		case "P":
			sets = append(sets, encode(fields[1:]))
			found.WriteString(line + "\n")
		case "E":
			found.WriteString("E" + strings.TrimPrefix(line, "E\t"+fields[1]) + "\n")
			count[checkGolden(t, fields[2], fields[1], sets)]++
		}
	}
	if found.String() != asked {
		t.Error("testdata/golden.txt answers other questions than the generator asks: see testdata/Answers.java.txt")
	}
	t.Logf("%d sets of properties, expressions: %v", len(sets), count)
}

func checkGolden(t *testing.T, text, want string, sets []string) string {
	t.Helper()
	e, err := Compile(text)
	var syntax *SyntaxError
	switch {
	case err != nil && (!errors.As(err, &syntax) || e != nil):
		t.Errorf("%q: %v with error %v", text, e, err)
	case want == "refused" || want[0] == '~':
		if err == nil {
			t.Errorf("%q is compiled; the original: %s", text, want)
		}
		return strings.TrimRight(want, "TFNX")
	case err != nil:
		t.Errorf("%q: %v; the original: %s", text, err, want)
	default:
		if got := answers(e, sets); got != want {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
		checkRequired(t, e, want, sets)
		return "compiled"
	}
	return ""
}

// checkRequired checks that a message which is wanted has what Required says.
func checkRequired(t *testing.T, e *Expression, outcomes string, sets []string) {
	t.Helper()
	for _, name := range goldenNames {
		values := e.Required(name)
		for i, set := range sets {
			value, _ := message.Property(set, name)
			if values != nil && outcomes[i] == 'T' && !slices.Contains(values, value) {
				t.Errorf("%q is TRUE for %s = %q, but requires %q", e, name, value, values)
			}
		}
	}
}
