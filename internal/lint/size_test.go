// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"go/ast"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	maxFileLines     = 600
	maxFuncLines     = 70
	maxLineColumns   = 120
	maxStructFields  = 15
	maxMethods       = 3
	maxProductLines  = 40_000
	longFuncMarker   = "//lint:long "
	wideStructMarker = "//lint:wide "
)

// TestSizes keeps files, functions, lines, structs and interfaces small. A function or table that is longer
// for a reason says it in a line `//lint:long reason` above it; a struct that mirrors the original's shape
// says `//lint:wide reason`.
func TestSizes(t *testing.T) {
	t.Parallel()
	total := 0
	for _, src := range sources(t) {
		if src.generated {
			continue
		}
		lines := strings.Split(src.text, "\n")
		if !src.test {
			total += codeLines(lines)
		}
		if len(lines)-1 > maxFileLines {
			t.Errorf("%s: %d lines, limit %d", src.path, len(lines)-1, maxFileLines)
		}
		for i, line := range lines {
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); n > maxLineColumns && !src.test {
				t.Errorf("%s:%d: %d columns, limit %d", src.path, i+1, n, maxLineColumns)
			}
		}
		checkFuncs(t, src, lines)
		checkTypes(t, src, lines)
	}
	if total > maxProductLines {
		t.Errorf("%d lines of Go code without tests and generated code, limit %d", total, maxProductLines)
	}
	t.Logf("%d lines of Go code without tests and generated code", total)
}

// codeLines counts the lines that are neither blank nor comment alone.
func codeLines(lines []string) (n int) {
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}

// marked tells whether the lines just above the given one carry the marker with a reason behind it.
func marked(lines []string, line int, marker string) bool {
	for i := line - 2; i >= 0 && strings.HasPrefix(strings.TrimSpace(lines[i]), "//"); i-- {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), marker); ok && len(rest) > 8 {
			return true
		}
	}
	return false
}

func checkFuncs(t *testing.T, src *source, lines []string) {
	t.Helper()
	for _, decl := range src.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil || src.test {
			continue
		}
		first, last := src.line(fn.Pos()), src.line(fn.End())
		if n := last - first + 1; n > maxFuncLines && !marked(lines, first, longFuncMarker) {
			t.Errorf("%s:%d: function %s has %d lines, limit %d", src.path, first, fn.Name.Name, n, maxFuncLines)
		}
		if fn.Name.Name == "init" && fn.Recv == nil {
			t.Errorf("%s:%d: init functions are banned", src.path, first)
		}
	}
}

func checkTypes(t *testing.T, src *source, lines []string) {
	t.Helper()
	ast.Inspect(src.file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || src.test {
			return true
		}
		first := src.line(spec.Pos())
		switch typ := spec.Type.(type) {
		case *ast.StructType:
			if n := typ.Fields.NumFields(); n > maxStructFields && !marked(lines, first, wideStructMarker) {
				t.Errorf(
					"%s:%d: struct %s has %d fields, limit %d",
					src.path,
					first,
					spec.Name.Name,
					n,
					maxStructFields,
				)
			}
		case *ast.InterfaceType:
			if n := typ.Methods.NumFields(); n > maxMethods {
				t.Errorf(
					"%s:%d: interface %s has %d methods, limit %d",
					src.path,
					first,
					spec.Name.Name,
					n,
					maxMethods,
				)
			}
		}
		return true
	})
}
