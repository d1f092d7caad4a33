// SPDX-License-Identifier: Apache-2.0

// Command vulncheck runs govulncheck over the module in its folder without the database's host: the database is made
// of the reports in the module golang.org/x/vulndb, which comes through the Go module proxy as all code does.
//
// It fails when the code reaches a vulnerability of a module. Those of the standard library are told, and mean a newer
// toolchain in go.mod.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const (
	database = "golang.org/x/vulndb@v0.0.0-20261105234957-e22db6528018"
	scanner  = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	stdlib   = "stdlib"
)

func main() {
	dir := flag.String("C", ".", "folder of the module to check")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	db, err := os.MkdirTemp("", "vulndb")
	if err != nil {
		return err
	}
	defer os.RemoveAll(db)
	if err := makeDatabase(db); err != nil {
		return err
	}
	scan := exec.Command("go", "run", scanner, "-db", "file://"+db, "-format", "json", "./...")
	scan.Dir = dir // whose go.mod says which Go the code is built with
	scan.Stderr = os.Stderr
	out, err := scan.Output()
	if err != nil {
		return fmt.Errorf("govulncheck: %w", err)
	}
	found, err := reached(bytes.NewReader(out))
	if err != nil {
		return err
	}
	var faults []error
	for _, f := range found {
		if f.Trace[0].Module == stdlib {
			fmt.Printf("%s in Go's own %s: build with %s\n", f.OSV, f.Trace[0].Package, f.Fixed)
			continue
		}
		faults = append(faults, fmt.Errorf("%s in %s %s, fixed in %q: https://pkg.go.dev/vuln/%s",
			f.OSV, f.Trace[0].Module, f.Trace[0].Version, f.Fixed, f.OSV))
	}
	return errors.Join(faults...)
}

// finding is a vulnerability as govulncheck tells of it. The trace begins where it is.
type finding struct {
	OSV   string `json:"osv"`
	Fixed string `json:"fixed_version"`
	Trace []struct {
		Module   string `json:"module"`
		Version  string `json:"version"`
		Package  string `json:"package"`
		Function string `json:"function"`
	} `json:"trace"`
}

// reached are the findings whose function the code calls, one of each vulnerability.
func reached(report io.Reader) (found []finding, err error) {
	decoder := json.NewDecoder(report)
	for {
		var line struct {
			Finding *finding `json:"finding"`
		}
		if err := decoder.Decode(&line); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		f := line.Finding
		if f == nil || len(f.Trace) == 0 || f.Trace[0].Function == "" {
			continue
		}
		if !slices.ContainsFunc(found, func(g finding) bool { return g.OSV == f.OSV }) {
			found = append(found, *f)
		}
	}
}

// vuln is a line of the database's index.
type vuln struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
}

type module struct {
	Path  string `json:"path"`
	Vulns []vuln `json:"vulns"`
}

// makeDatabase lays a database down in a folder, in the form of https://go.dev/security/vuln/database.
func makeDatabase(dir string) error {
	text, err := exec.Command("go", "mod", "download", "-json", database).Output()
	if err != nil {
		return fmt.Errorf("download %s: %w", database, err)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(text, &downloaded); err != nil {
		return err
	}
	reports, err := filepath.Glob(filepath.Join(downloaded.Dir, "data", "osv", "GO-*.json"))
	if err != nil || len(reports) == 0 {
		return errors.Join(err, fmt.Errorf("no reports in %s", database))
	}
	for _, folder := range []string{"ID", "index"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o750); err != nil {
			return err
		}
	}
	byPath := map[string]*module{}
	for _, report := range reports {
		if err := addReport(dir, report, byPath); err != nil {
			return fmt.Errorf("%s: %w", report, err)
		}
	}
	var modules []*module
	for _, m := range byPath {
		modules = append(modules, m)
	}
	return errors.Join(
		writeJSON(filepath.Join(dir, "index", "modules.json"), modules),
		writeJSON(filepath.Join(dir, "index", "db.json"), map[string]time.Time{"modified": time.Now().UTC()}),
	)
}

// addReport copies a report that was not withdrawn and puts its modules into the index.
func addReport(dir, path string, byPath map[string]*module) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var report struct {
		vuln
		Withdrawn *time.Time `json:"withdrawn"`
		Affected  []struct {
			Package struct {
				Name string `json:"name"`
			} `json:"package"`
		} `json:"affected"`
	}
	if err := json.Unmarshal(text, &report); err != nil || report.Withdrawn != nil {
		return err
	}
	for _, affected := range report.Affected {
		name := affected.Package.Name
		if byPath[name] == nil {
			byPath[name] = &module{Path: name}
		}
		if m := byPath[name]; !slices.Contains(m.Vulns, report.vuln) {
			m.Vulns = append(m.Vulns, report.vuln)
		}
	}
	return os.WriteFile(filepath.Join(dir, "ID", report.ID+".json"), text, 0o600)
}

func writeJSON(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}
