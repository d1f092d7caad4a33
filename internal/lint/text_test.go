// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

const licenceLine = "// SPDX-License-Identifier: Apache-2.0"

// bannedInProduct are selector calls that no product code makes; the value says what to do instead.
var bannedInProduct = map[string]string{
	"slog.Default":   "take a *slog.Logger",
	"slog.Info":      "take a *slog.Logger",
	"slog.Warn":      "take a *slog.Logger",
	"slog.Error":     "take a *slog.Logger",
	"log.Printf":     "take a *slog.Logger",
	"log.Println":    "take a *slog.Logger",
	"log.Fatal":      "return an error",
	"log.Fatalf":     "return an error",
	"fmt.Print":      "take an io.Writer",
	"fmt.Println":    "take an io.Writer",
	"fmt.Printf":     "take an io.Writer",
	"time.Sleep":     "wait on a channel or a timer",
	"os.Exit":        "return an error from main",
	"ioutil.ReadAll": "use io",
}

// onlyMain may exit; nobody else ends the process.
const onlyMain = "cmd/server/main.go"

// TestText checks licence lines, package names, banned calls and documentation.
func TestText(t *testing.T) {
	t.Parallel()
	vague := regexp.MustCompile(`^(util|utils|common|helper|helpers|types|models|base|misc)$`)
	for _, src := range sources(t) {
		if !strings.HasPrefix(src.text, licenceLine) && !src.generated {
			t.Errorf("%s: the first line is not %q", src.path, licenceLine)
		}
		if vague.MatchString(src.file.Name.Name) {
			t.Errorf("%s: %s is not a noun of the product", src.path, src.file.Name.Name)
		}
		checkCalls(t, src)
		if !src.test && !src.generated {
			checkDocs(t, src)
		}
	}
}

func checkCalls(t *testing.T, src *source) {
	t.Helper()
	ast.Inspect(src.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := sel.X.(*ast.Ident)
		if !ok || pkg.Obj != nil {
			return true
		}
		name := pkg.Name + "." + sel.Sel.Name
		cure, banned := bannedInProduct[name]
		if src.test {
			// Inside a synctest bubble sleeping moves a virtual clock and costs no time.
			banned = name == "time.Sleep" && !strings.Contains(src.text, `"testing/synctest"`)
		}
		if banned && (src.path != onlyMain || name != "os.Exit") {
			t.Errorf("%s:%d: %s is banned: %s", src.path, src.line(call.Pos()), name, cure)
		}
		return true
	})
}

func checkDocs(t *testing.T, src *source) {
	t.Helper()
	for _, decl := range src.file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !saysItself(d) {
				t.Errorf("%s:%d: %s has no doc comment", src.path, src.line(d.Pos()), d.Name.Name)
			}
		case *ast.GenDecl:
			checkDeclDocs(t, src, d)
		}
	}
}

// checkDeclDocs wants a comment on each exported type, and on each exported constant or variable or on its
// block.
func checkDeclDocs(t *testing.T, src *source, d *ast.GenDecl) {
	t.Helper()
	if d.Tok == token.IMPORT {
		return
	}
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				t.Errorf("%s:%d: type %s has no doc comment", src.path, src.line(s.Pos()), s.Name.Name)
			}
		case *ast.ValueSpec:
			if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
				t.Errorf("%s:%d: %s has no doc comment", src.path, src.line(s.Pos()), s.Names[0].Name)
			}
		}
	}
}

// saysItself tells whether the method is one of the language's own, whose contract everybody knows.
func saysItself(fn *ast.FuncDecl) bool {
	return fn.Recv != nil && (fn.Name.Name == "Error" || fn.Name.Name == "Unwrap" || fn.Name.Name == "Is")
}

func exportedReceiver(fn *ast.FuncDecl) bool {
	if fn.Recv == nil {
		return true
	}
	typ := fn.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if gen, ok := typ.(*ast.IndexExpr); ok {
		typ = gen.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// TestPackagesAreIntroduced wants one package comment in each package.
func TestPackagesAreIntroduced(t *testing.T) {
	t.Parallel()
	introduced := map[string]bool{}
	for _, src := range sources(t) {
		if !src.test && !src.generated {
			introduced[src.dir()] = introduced[src.dir()] || src.file.Doc != nil
		}
	}
	for dir, ok := range introduced {
		if !ok {
			t.Errorf("%s: no package comment", dir)
		}
	}
}
