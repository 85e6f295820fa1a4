//go:build unix

package tensor_test

import (
	"cmp"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chorus-comms/chorus/device"
	"github.com/chorus-comms/chorus/device/cpu"
	"github.com/chorus-comms/chorus/dtype"
	"github.com/chorus-comms/chorus/tensor"
)

// Tensors that were saved on devices are loaded there, or to the device of a placement, with the metadata of their
// storage.
func TestArchivesOfDevices(t *testing.T) {
	ctx, first := accinte(t, 0)
	_, second := accinte(t, 1)
	path := filepath.Join(t.TempDir(), "a.safetensors")
	host := must(tensor.Full(dtype.Float32, 3, 4))
	one := must(tensor.Full(dtype.Float32, 1, 2, 3)) // made here, moved there
	meta := map[string]string{"version_number": "1", "format_number": "29"}
	on := must(one.To(ctx, first))
	on.SetStorageMetadata(meta)
	a := &tensor.Archive{Tensors: map[string]*tensor.Tensor{
		"host": host, "first": on, "row": must(on.Select(0, 1)), "second": must(host.To(ctx, second)),
	}, Metadata: map[string]string{"by": "test"}}
	if err := tensor.SaveArchive(ctx, path, a); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name  string
		place tensor.Placement
		want  map[string]*device.Device
	}{
		{"as saved", tensor.AsSaved, map[string]*device.Device{"first": first, "row": first, "second": second}},
		{"on the host", tensor.OnHost, nil},
		{"on the second", tensor.OnDevice(second), map[string]*device.Device{"host": second, "first": second, "row": second,
			"second": second}},
		{"remapped", tensor.Remapped(map[string]string{"accinte:0": "accinte:1", "accinte:1": "cpu", "cpu": "accinte"}),
			map[string]*device.Device{"host": first, "first": second, "row": second}},
	} {
		b, err := tensor.LoadArchive(ctx, path, x.place)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if !maps.Equal(b.Metadata, a.Metadata) || len(b.Tensors) != 4 {
			t.Errorf("%s: %v, %d tensors", x.name, b.Metadata, len(b.Tensors))
		}
		for name, got := range b.Tensors {
			if got.On() != cmp.Or(x.want[name], cpu.Device()) {
				t.Errorf("%s: %s is on %s", x.name, name, got.Device())
			}
			if !tensor.Equal(must(got.To(ctx, nil)), must(a.Tensors[name].To(ctx, nil))) {
				t.Errorf("%s: %s has other elements", x.name, name)
			}
			want := meta
			if strings.Contains("host second", name) || got.OnHost() {
				want = nil
			}
			if !maps.Equal(got.StorageMetadata(), want) {
				t.Errorf("%s: %s has the metadata %v", x.name, name, got.StorageMetadata())
			}
		}
	}
	// Others read it as any file of the format.
	if plain, err := tensor.LoadSafetensors(path); err != nil || plain.Metadata["chorus.location.first"] != "accinte:0" {
		t.Errorf("%v, %v", plain, err)
	}
	for want, place := range map[error]tensor.Placement{
		device.ErrNoDevice:    tensor.Remapped(map[string]string{"accinte:0": "nonesuch:0"}),
		device.ErrWrongDevice: tensor.Remapped(map[string]string{"accinte:1": "accinte:7"}),
	} {
		if _, err := tensor.LoadArchive(ctx, path, place); !errors.Is(err, want) || !strings.Contains(err.Error(),
			"saved on") {
			t.Errorf("%v, want %v", err, want)
		}
	}
	a.Metadata = map[string]string{"chorus.location.host": "x"}
	if err := tensor.SaveArchive(ctx, path, a); err == nil {
		t.Error("metadata of the archive's own is accepted")
	}
	on.SetStorageMetadata(nil)
	if must(on.Select(0, 0)).StorageMetadata() != nil {
		t.Error("metadata that was taken away is there")
	}
}
