// SPDX-License-Identifier: Apache-2.0

// Command protocolgen writes headers_gen.go, bodies_gen.go and codes_gen.go of internal/protocol from headers.txt,
// bodies.txt and codes.txt, what internal/service and internal/grpcapi need to know of codes from the same, and
// properties_gen.go of internal/message from properties.txt. The heads of these files explain their form. With -check
// it writes nothing and fails when a file is not what it would write. It runs in tools, the module's folder.
package main

import (
	"bytes"
	"errors"
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
	internal := filepath.Join("..", "internal")
	var faults []error
	read := func(file string) string {
		text, err := os.ReadFile(filepath.Join(internal, filepath.FromSlash(file)))
		faults = append(faults, err)
		return string(text)
	}
	codes, err := parseCodes(read("protocol/codes.txt"))
	headers, err2 := parseHeaders(read("protocol/headers.txt"), codes)
	bodies, err3 := parseBodies(read("protocol/bodies.txt"))
	rights, err4 := emitRights(codes)
	properties, err5 := emitProperties(read("message/properties.txt"))
	if err := errors.Join(append(faults, err, err2, err3, err4, err5)...); err != nil {
		return err
	}
	faults = nil
	for file, source := range map[string]string{
		"protocol/codes_gen.go": emitCodes(codes), "protocol/bodies_gen.go": emitBodies(bodies),
		"protocol/headers_gen.go": emitHeaders(headers, codes), "service/rights_gen.go": rights,
		"grpcapi/codes_gen.go": emitStatus(codes), "message/properties_gen.go": properties,
	} {
		faults = append(faults, output(filepath.Join(internal, filepath.FromSlash(file)), source, check))
	}
	return errors.Join(faults...)
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
