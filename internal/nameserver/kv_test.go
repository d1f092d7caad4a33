// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mustOpen(tb testing.TB, path string) *KV {
	tb.Helper()
	kv, err := OpenKV(path)
	if err != nil {
		tb.Fatal(err)
	}
	return kv
}

func TestKVIsThereAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "deep", "kvConfig.json")
	kv := mustOpen(t, path)
	for _, err := range []error{
		kv.Put("ns", "a", "1"), kv.Put("ns", "b", "2"), kv.Put("ns", "a", "3"),
		kv.Put("other", "a", "x"), kv.Delete("ns", "b"), kv.Delete("ns", "b"), kv.Delete("nothing", "b"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, kv := range []*KV{kv, mustOpen(t, path)} {
		if v, ok := kv.Get("ns", "a"); !ok || v != "3" {
			t.Errorf("a is %q, %v", v, ok)
		}
		if _, ok := kv.Get("ns", "b"); ok {
			t.Error("b is still there")
		}
		list, ok := kv.List("ns")
		if !ok || !maps.Equal(list, map[string]string{"a": "3"}) {
			t.Errorf("list %v, %v", list, ok)
		}
		list["a"] = "changed"
		if v, _ := kv.Get("ns", "a"); v != "3" {
			t.Error("the list is shared")
		}
		if _, ok := kv.List("never"); ok {
			t.Error("a namespace that never was")
		}
	}
	memory := mustOpen(t, "")
	if err := memory.Put("ns", "a", "1"); err != nil {
		t.Error(err)
	}
}

// TestC163SettingsAreOldOrNew: a torn write beside the file does no harm, a failed save changes nothing, and
// a file that cannot be understood is named, not emptied.
func TestC163SettingsAreOldOrNew(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "kvConfig.json")
	kv := mustOpen(t, path)
	if err := kv.Put("ns", "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".partial", []byte(`{"configTable":{"ns`), 0o600); err != nil {
		t.Fatal(err)
	}
	kv = mustOpen(t, path)
	if v, _ := kv.Get("ns", "a"); v != "1" {
		t.Errorf("a is %q", v)
	}
	if err := os.Remove(path + ".partial"); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(path+".partial/x", 0o700); err != nil { // nothing can be written aside
		t.Fatal(err)
	}
	if err := kv.Put("ns", "a", "2"); err == nil {
		t.Error("saved over a folder")
	}
	if v, _ := kv.Get("ns", "a"); v != "1" {
		t.Errorf("a is %q after a failed save", v)
	}
	if v, _ := mustOpen(t, path).Get("ns", "a"); v != "1" {
		t.Errorf("a is %q in the file", v)
	}
	for _, content := range []string{"", "{", `{"configTable":3}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKV(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("content %q: %v", content, err)
		}
	}
}
