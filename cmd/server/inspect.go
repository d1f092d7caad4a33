// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/roquetmq/roquet/internal/client"
	"github.com/roquetmq/roquet/internal/service"
)

// verifyCommand checks a store that no process has open.
func verifyCommand() *cobra.Command {
	short := "Check every checksum of a stopped store and that index and log agree"
	return local("verify DIR", short, cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		return service.Verify(cmd.Context(), args[0], cmd.OutOrStdout())
	})
}

// healthCommand asks a running server; it is the health check of images, where no shell and no curl exist. It needs no
// credentials and sends none.
func healthCommand() *cobra.Command {
	r := &remote{}
	var file string
	short := "Ask a running server whether it is ready; exit status 0 if so"
	cmd := local("health", short, cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		own, err := r.locate(cmd, file)
		if err != nil {
			return err
		}
		c, err := client.New(client.Config{
			Server: r.Server, CAFile: r.CAFile, Insecure: r.Insecure || own, Timeout: r.Timeout,
		})
		if err != nil {
			return err
		}
		text, _, err := c.Do(cmd.Context(), http.MethodGet, "/readyz", nil)
		if err == nil {
			_, err = cmd.OutOrStdout().Write(text)
		}
		return err
	})
	cmd.Long = short + ". The address is that of --server or\n" +
		"ROQUET_SERVER, else what the server on this machine has from the environment and --config."
	flags := cmd.Flags()
	flags.StringVar(&r.Server, "server", localServer, "the server, any of its ports [ROQUET_SERVER]")
	flags.StringVar(&r.Server, "addr", localServer, "the same")
	flags.StringVarP(&file, "config", "c", "", "the server's configuration file")
	flags.StringVar(&r.CAFile, "ca", "", "PEM file: who signs the server's certificate [ROQUET_CA]")
	flags.BoolVar(&r.Insecure, "insecure", false, "believe any certificate")
	flags.DurationVar(&r.Timeout, "timeout", 3*time.Second, "longest time for the answer")
	return cmd
}
