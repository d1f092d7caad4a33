// SPDX-License-Identifier: Apache-2.0

// Command protocolgen writes headers_gen.go, bodies_gen.go and codes_gen.go of internal/protocol from headers.txt,
// bodies.txt and codes.txt, whose heads explain their form. With -check it writes nothing and fails when a file is
// not what it would write. It runs in tools, the module's folder.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "fail if the generated files differ")
	flag.Parse()
	if err := run(*check); err != nil {
		panic(err)
	}
}

func run(check bool) error {
	dir := filepath.Join("..", "internal", "protocol")
	codesText, err := os.ReadFile(filepath.Join(dir, "codes.txt"))
	if err != nil {
		return err
	}
	codes, err := parseCodes(string(codesText))
	if err != nil {
		return err
	}
	headersText, err := os.ReadFile(filepath.Join(dir, "headers.txt"))
	if err != nil {
		return err
	}
	headers, err := parseHeaders(string(headersText), codes)
	if err != nil {
		return err
	}
	if err := output(filepath.Join(dir, "codes_gen.go"), emitCodes(codes), check); err != nil {
		return err
	}
	bodiesText, err := os.ReadFile(filepath.Join(dir, "bodies.txt"))
	if err != nil {
		return err
	}
	bodies, err := parseBodies(string(bodiesText))
	if err != nil {
		return err
	}
	if err := output(filepath.Join(dir, "bodies_gen.go"), emitBodies(bodies), check); err != nil {
		return err
	}
	return output(filepath.Join(dir, "headers_gen.go"), emitHeaders(headers, codes), check)
}

// output writes source to path, or compares the two.
func output(path, source string, check bool) error {
	want, err := format.Source([]byte(source))
	if err != nil {
		return fmt.Errorf("generated %s: %w", path, err)
	}
	if !check {
		return os.WriteFile(path, want, 0o644)
	}
	have, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return fmt.Errorf("%s is not up to date: go generate ./internal/protocol", path)
	}
	return nil
}
