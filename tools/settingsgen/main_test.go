// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestGenerated is `make generate-check` as a test.
func TestGenerated(t *testing.T) {
	t.Chdir("..")
	if err := run(true); err != nil {
		t.Error(err)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	const head = "# form\n\n// G is a group.\nG\n"
	groups, err := parse(head + "  a.b  Field millis  --a-b  live  = 5 * time.Second  in 1…\n      what it is  // more\n")
	want := setting{
		key: "a.b", field: "Field", kind: "millis", flag: "a-b", live: true, def: "5 * time.Second", allowed: "1…",
		usage: "what it is", more: "more",
	}
	if err != nil || len(groups) != 1 || groups[0].name != "G" || groups[0].settings[0] != want {
		t.Errorf("%+v, %v", groups, err)
	}
	for _, text := range []string{"G\n", head + "  a  Field string\n", head + "  a  Field string  --a\n  b  Field string  --b\n", head + "      lost\n"} {
		if groups, err := parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, groups)
		}
	}
}
