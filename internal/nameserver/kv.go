// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/roquetmq/roquet/internal/disk"
)

// OrderNamespace is the namespace of settings that fix the queues of ordered topics: topic →
// "broker:queues;...".
const OrderNamespace = "ORDER_TOPIC_CONFIG"

// KV is settings by namespace and key, kept in one small JSON file, {"configTable":{namespace:{key:value}}}.
// All methods are safe for concurrent use; Put and Delete return after the file
// is on disk. Source: KVConfigManager.java.
type KV struct {
	path string // empty: memory alone

	saving sync.Mutex                                   // one change at a time; held for I/O
	table  atomic.Pointer[map[string]map[string]string] // what it points to is not changed
}

type kvFile struct {
	ConfigTable map[string]map[string]string `json:"configTable"`
}

// OpenKV reads the settings at path, if there are any; an empty path keeps them in memory alone. A file that
// cannot be understood is an error that names it.
func OpenKV(path string) (*KV, error) {
	kv := &KV{path: path}
	kv.table.Store(&map[string]map[string]string{})
	if path == "" {
		return kv, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return kv, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read name server settings: %w", err)
	}
	var file kvFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("name server settings %s: %w; restore or remove the file", path, err)
	}
	maps.Copy(*kv.table.Load(), file.ConfigTable)
	return kv, nil
}

// Get returns a setting.
func (kv *KV) Get(namespace, key string) (string, bool) {
	v, ok := (*kv.table.Load())[namespace][key]
	return v, ok
}

// List returns a copy of a namespace; false when it never had a setting.
func (kv *KV) List(namespace string) (map[string]string, bool) {
	table, ok := (*kv.table.Load())[namespace]
	return maps.Clone(table), ok
}

// Put sets a setting. With an error it is as before.
func (kv *KV) Put(namespace, key, value string) error {
	return kv.change(namespace, func(table map[string]string) { table[key] = value })
}

// Delete takes a setting away; one that is not there is fine.
func (kv *KV) Delete(namespace, key string) error {
	if _, ok := kv.Get(namespace, key); !ok {
		return nil
	}
	return kv.change(namespace, func(table map[string]string) { delete(table, key) })
}

func (kv *KV) change(namespace string, edit func(map[string]string)) error {
	kv.saving.Lock()
	defer kv.saving.Unlock()
	next := maps.Clone(*kv.table.Load())
	table := map[string]string{}
	maps.Copy(table, next[namespace])
	edit(table)
	next[namespace] = table
	if err := kv.save(next); err != nil {
		return fmt.Errorf("save name server settings: %w", err)
	}
	kv.table.Store(&next)
	return nil
}

func (kv *KV) save(table map[string]map[string]string) error {
	if kv.path == "" {
		return nil
	}
	data, err := json.MarshalIndent(kvFile{ConfigTable: table}, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(kv.path), 0o755); err != nil {
		return err
	}
	return disk.Replace(nil, kv.path, data)
}
