// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/roquetmq/roquet/api/proto/roquet/v1"
	"github.com/roquetmq/roquet/internal/client"
	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/protocol"
)

// What a check says.
const (
	fine    = "ok"
	warning = "warning"
	failed  = "failed"
)

// finding is what one check found, and what to do about it.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Found  string `json:"found"`
	Cure   string `json:"cure,omitempty"`
}

// doctor checks a server from where it runs, and the machine that it runs on.
type doctor struct {
	*call
	dir      string         // the server's data, when it is on this machine
	cfg      *config.Config // the server's
	broker   string
	addr     string // the broker's, as clients are told
	findings []finding
}

func doctorCommand(r *remote) *cobra.Command {
	d := &doctor{}
	cmd := r.verb("doctor", "Check addresses, name servers, clocks, disk and limits from here", cobra.NoArgs,
		func(c *call) error {
			d.call = c
			return d.run()
		})
	cmd.Long = "Check what a server and its clients need, as seen from the machine this runs on. Each line says\n" +
		"what was found and, unless it is well, the cure. Run it where clients run; and beside the server, with\n" +
		"--data, for disk and limits. The exit status is 1 when a check failed."
	cmd.Flags().StringVar(&d.dir, "data", "", "the server's data folder; its own setting, if that is here")
	r.addFlags(cmd.Flags())
	return cmd
}

func (d *doctor) run() error {
	if d.askServer() {
		d.checkAddresses()
		d.checkNames()
		d.checkSpace()
	}
	d.checkDisk()
	d.checkLimits()
	shown := d.findings
	if !d.json() {
		shown = nil
		for _, f := range d.findings {
			if shown = append(shown, f); f.Cure != "" {
				shown = append(shown, finding{Check: " ", Status: " ", Found: "→ " + f.Cure})
			}
		}
	}
	err := d.show(shown, "check status found")
	bad := slices.DeleteFunc(slices.Clone(d.findings), func(f finding) bool { return f.Status != failed })
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("%d of %d checks failed", len(bad), len(d.findings))
	}
	return err
}

// note adds a finding; a cure is for what is not well.
func (d *doctor) note(check, status, cure, found string, args ...any) {
	if status == fine {
		cure = ""
	}
	d.findings = append(d.findings, finding{check, status, fmt.Sprintf(found, args...), cure})
}

// Clocks: more than the first is worth a word, more than the second breaks timers and what people read from times.
const (
	skewNoted = 2 * time.Second
	skewBad   = time.Minute
)

// askServer asks for what the other checks need, and compares clocks.
func (d *doctor) askServer() bool {
	asked := time.Now()
	_, header, err := d.Do(d, http.MethodGet, "/readyz", nil)
	if err != nil {
		d.note("server", failed, "start it with roquet serve, or name it with --server; its log says more", "%v", err)
		return false
	}
	took := time.Since(asked)
	d.note("server", fine, "", "%s is ready, answered in %s", d.Server, took.Round(100*time.Microsecond))
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		skew := asked.Add(took / 2).Sub(date.Add(time.Second / 2)).Abs() // the header has whole seconds
		cure := "synchronize both machines' clocks (chrony, systemd-timesyncd)"
		d.note("clock", grade(skew, skewNoted, skewBad), cure, "%s apart from the server's",
			max(skew-time.Second/2, 0).Round(time.Second))
	}
	settings, err := d.GetConfig(d, &v1.GetConfigRequest{})
	if err != nil {
		d.note("settings", failed, "ask as a user who may read the configuration", "%v", err)
		return false
	}
	d.cfg = config.New()
	for _, s := range d.cfg.Settings() {
		if text, ok := settings.GetValues()[s.Key]; ok {
			_ = s.Set(text) // a value of another version stays at its default
		}
	}
	d.broker = d.cfg.Identity.BrokerName
	return true
}

// checkAddresses tries each address that clients are told.
func (d *doctor) checkAddresses() {
	l := &d.cfg.Listen
	cluster, err := d.GetCluster(d, &v1.GetClusterRequest{})
	refused, ok := errors.AsType[*client.Error](err)
	if ok && refused.Status == http.StatusNotImplemented { // it is no name server itself
		told := cmp.Or(d.cfg.Identity.AdvertiseHost, d.Host())
		d.addr, err = net.JoinHostPort(told, strconv.Itoa(l.BrokerPort)), nil // this one with portOffset in it
	}
	if err != nil {
		d.note("addresses", failed, "ask as a user who may see the cluster", "%v", err)
		return
	}
	for _, b := range cluster.GetBrokers() {
		if b.GetName() == d.broker {
			d.addr = b.GetAddresses()["0"]
		}
	}
	host, _, err := net.SplitHostPort(d.addr)
	if err != nil {
		host = d.Host()
		d.note("broker address", failed, "is the broker's role on (--roles), does it register? its log says why not",
			"the name server of %s does not know the broker %s", d.Server, d.broker)
	} else if told, asked := isLoopback(host), isLoopback(d.Host()); told && !asked {
		d.note("broker address", failed, "serve with --advertise HOST, a name or address that clients reach",
			"clients are told %s, which is their own machine", d.addr)
		host = d.Host()
	}
	if d.addr != "" {
		d.checkListener("broker", d.addr)
	}
	names := []string{"fast broker", "gRPC", "HTTP", "name server"}
	for i, port := range []int{l.FastPort, l.GRPCPort, l.HTTPPort, l.NamesrvPort} {
		if port != 0 && (i < 3 || d.cfg.HasRole(config.RoleNameServer)) {
			d.checkListener(names[i], net.JoinHostPort(host, strconv.Itoa(l.Port(port))))
		}
	}
	for _, extra := range l.Extra {
		_, told, _ := strings.Cut(extra, "=")
		d.checkListener("extra", told)
	}
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// checkListener connects and asks as a client of RocketMQ does: all of them speak all protocols.
func (d *doctor) checkListener(name, addr string) {
	asked := time.Now()
	if _, err := d.ask(addr); err != nil {
		d.note(name+" port", failed, "open the port in the firewall or publish it, or tell clients another address: "+
			"--advertise, --listener", "no answer from %s, as seen from here: %v", addr, err)
		return
	}
	d.note(name+" port", fine, "", "%s answered in %s", addr, time.Since(asked).Round(100*time.Microsecond))
}

// ask asks for the cluster in the native protocol.
func (d *doctor) ask(addr string) (*protocol.Command, error) {
	c, err := d.dial(addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(d, min(d.Timeout, 3*time.Second))
	defer cancel()
	answer, err := d.native(ctx, c, protocol.GetBrokerClusterInfo, nil, nil)
	if dial, ok := errors.AsType[*net.OpError](err); ok {
		err = dial.Err // without the address, which is said already
	}
	return answer, err
}

// checkNames asks each name server whether it sends clients to this broker.
func (d *doctor) checkNames() {
	for _, addr := range d.cfg.Identity.NamesrvAddrs {
		answer, err := d.ask(addr)
		if err != nil {
			d.note("name server", failed, "is it running, is the port open? else correct namesrvAddr (--namesrv)",
				"no answer from %s: %v", addr, err)
			continue
		}
		info, err := protocol.DecodeBody[protocol.ClusterInfo](answer.Body)
		if answer.Code != int32(protocol.Success) || err != nil {
			d.note("name server", warning, "its user may not see the cluster", "%s answered %s", addr, answer.Remark)
			continue
		}
		known, ok := info.BrokerAddrTable[d.broker]
		switch {
		case !ok:
			d.note("name server", failed, "the broker registers every 30 s; its log says why it could not",
				"%s does not know the broker %s", addr, d.broker)
		case known.BrokerAddrs[0] != d.addr && d.addr != "":
			d.note("name server", failed, "do two brokers share the name? set another with --broker-name",
				"%s sends clients to %s, not to %s", addr, known.BrokerAddrs[0], d.addr)
		default:
			d.note("name server", fine, "", "%s sends clients to %s", addr, known.BrokerAddrs[0])
		}
	}
}

// checkSpace compares the use of the server's volume with its limits.
func (d *doctor) checkSpace() {
	brokers, err := d.ListBrokers(d, &v1.ListBrokersRequest{})
	if err != nil || len(brokers.GetBrokers()) == 0 {
		d.note("disk space", warning, "ask as a user who may see the broker", "unknown: %v", err)
		return
	}
	runtime := brokers.GetBrokers()[0].GetRuntime()
	ratio, _ := strconv.ParseFloat(runtime["commitLogDiskRatio"], 64)
	used, s, size := int(ratio*100), &d.cfg.Store, strings.TrimSuffix(runtime["commitLogDirCapacity"], ".")
	status := grade(used, s.DiskMaxUsedRatio-1, s.DiskWarningRatio-1)
	d.note("disk space", status, "add space, or keep less: --retention, --retention-size",
		"%d %% used of %s; old messages go early at %d %%, writes stop at %d %%",
		used, size, s.DiskMaxUsedRatio, s.DiskWarningRatio)
}

// grade is what a value over one bound, and over the other, means.
func grade[T cmp.Ordered](value, noted, bad T) string {
	switch {
	case value > bad:
		return failed
	case value > noted:
		return warning
	}
	return fine
}
