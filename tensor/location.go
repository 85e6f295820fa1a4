package tensor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/chorus-comms/chorus/device"
)

// Where an archive's tensors were, and what their storages said of themselves, stands in its metadata under these
// prefixes and the tensors' names; a tensor without a location was on the host.
const (
	locationPrefix = "chorus.location."
	storagePrefix  = "chorus.storage."
)

// A Placement says where a tensor that was saved is to be, by its location tag, such as "accinte:1", or "cpu". Nil is
// the host.
type Placement func(tag string) (*device.Device, error)

// AsSaved puts tensors where they were: a location without an index is the first device of its type.
func AsSaved(tag string) (*device.Device, error) {
	return device.Get(tag)
}

// OnHost puts all tensors on the host.
func OnHost(string) (*device.Device, error) { return nil, nil }

// OnDevice puts all tensors on one device.
func OnDevice(d *device.Device) Placement {
	return func(string) (*device.Device, error) { return d, nil }
}

// Remapped puts tensors where a table says, by the tag as it was saved, and others where they were.
func Remapped(table map[string]string) Placement {
	return func(tag string) (*device.Device, error) {
		if to, ok := table[tag]; ok {
			tag = to
		}
		return AsSaved(tag)
	}
}

// SetStorageMetadata says something about the memory that the tensor shares with its views: what a driver's format
// needs to be known by, for example. It's saved by [SaveArchive] and restored where the tensor comes to a device; nil
// takes it away.
func (t *Tensor) SetStorageMetadata(m map[string]string) {
	m = maps.Clone(m)
	t.store.meta.Store(&m)
}

// StorageMetadata returns a copy of what SetStorageMetadata said, nil if it said nothing.
func (t *Tensor) StorageMetadata() map[string]string {
	if m := t.store.meta.Load(); m != nil {
		return maps.Clone(*m)
	}
	return nil
}

// SaveArchive is [SaveSafetensors] for tensors on any devices, which are copied in the order of their current streams.
// The file says where each was. Metadata of the archive must not use the prefix "chorus.".
func SaveArchive(ctx context.Context, path string, a *Archive) error {
	host := &Archive{Tensors: make(map[string]*Tensor, len(a.Tensors)), Metadata: maps.Clone(a.Metadata)}
	for key := range a.Metadata {
		if strings.HasPrefix(key, locationPrefix) || strings.HasPrefix(key, storagePrefix) {
			return fmt.Errorf("tensor: the metadata %q is for the archive's own use", key)
		}
	}
	if host.Metadata == nil {
		host.Metadata = map[string]string{}
	}
	for name, t := range a.Tensors {
		if !t.OnHost() {
			host.Metadata[locationPrefix+name] = t.Device()
		}
		if m := t.StorageMetadata(); m != nil {
			text, err := json.Marshal(m)
			if err != nil {
				return err
			}
			host.Metadata[storagePrefix+name] = string(text)
		}
		there, err := t.To(ctx, nil)
		if err != nil {
			return fmt.Errorf("tensor: %q: %w", name, err)
		}
		host.Tensors[name] = there
	}
	if len(host.Metadata) == 0 {
		host.Metadata = a.Metadata
	}
	return SaveSafetensors(path, host)
}

// LoadArchive reads what [SaveArchive], or any other program, has written as safetensors, and puts each tensor where
// its place says. A device that isn't there is an error that names the tensor; nothing is loaded then. Metadata of
// storages comes back on devices, and is dropped on the host.
func LoadArchive(ctx context.Context, path string, place Placement) (*Archive, error) {
	a, err := LoadSafetensors(path)
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for key, value := range a.Metadata {
		if strings.HasPrefix(key, locationPrefix) || strings.HasPrefix(key, storagePrefix) {
			own[key] = value
			delete(a.Metadata, key)
		}
	}
	if len(a.Metadata) == 0 && len(own) > 0 {
		a.Metadata = nil
	}
	for name, t := range a.Tensors {
		tag := own[locationPrefix+name]
		if tag == "" {
			tag = device.Host
		}
		d, err := place(tag)
		if err == nil {
			t, err = t.To(ctx, d)
		}
		if err == nil && !t.OnHost() {
			err = t.restore(own[storagePrefix+name])
		}
		if err != nil {
			return nil, fmt.Errorf("%s: tensor %q, saved on %q: %w", path, name, tag, err)
		}
		a.Tensors[name] = t
	}
	return a, nil
}

// restore sets the storage's metadata from its saved form.
func (t *Tensor) restore(text string) error {
	if text == "" {
		return nil
	}
	var m map[string]string
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return fmt.Errorf("metadata of its storage: %w", err)
	}
	t.SetStorageMetadata(m)
	return nil
}
