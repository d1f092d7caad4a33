// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const modulePath = "github.com/roquetmq/roquet/"

// source is one parsed Go file of the module.
type source struct {
	path      string // from the repository's root, with slashes
	text      string
	fset      *token.FileSet
	file      *ast.File
	test      bool
	generated bool
}

func (s *source) line(pos token.Pos) int { return s.fset.Position(pos).Line }

// dir is the package folder of the file: "internal/store".
func (s *source) dir() string { return filepath.ToSlash(filepath.Dir(s.path)) }

// repositoryRoot is found from the package's own folder, in which the go tool runs its tests.
const repositoryRoot = "../.."

// sources parses every Go file of the module, nested modules and test data apart.
func sources(t *testing.T) []*source {
	t.Helper()
	var all []*source
	err := filepath.WalkDir(repositoryRoot, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != repositoryRoot && skippedFolder(path, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := parse(path)
		if err == nil {
			all = append(all, src)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d Go files found below %s", len(all), repositoryRoot)
	}
	return all
}

func skippedFolder(path, name string) bool {
	if strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "dist" {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

func parse(path string) (*source, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(repositoryRoot, path)
	if err != nil {
		return nil, err
	}
	return &source{
		path: filepath.ToSlash(rel), text: string(text), fset: fset, file: file,
		test: strings.HasSuffix(path, "_test.go"), generated: ast.IsGenerated(file),
	}, nil
}
