// SPDX-License-Identifier: Apache-2.0

package nested

import "testing"

func TestMapHasNoEmptyMaps(t *testing.T) {
	t.Parallel()
	m := Map[string, int, string]{}
	m.Put("a", 1, "x")
	m.Put("a", 1, "y")
	m.Put("a", 2, "z")
	m.Delete("none", 1)
	if m.Delete("a", 2); len(m) != 1 || len(m["a"]) != 1 || m["a"][1] != "y" {
		t.Errorf("%v", m)
	}
	if m.Delete("a", 1); len(m) != 0 {
		t.Errorf("%v", m)
	}
}
