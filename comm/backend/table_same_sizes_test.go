package backend

import (
	"fmt"
	"strings"
	"testing"
)

// TestSameSizes lists the collectives whose ranks don't all put in, or get, as many elements.
func TestSameSizes(t *testing.T) {
	var got []string
	for _, k := range Collectives() {
		if in, out := k.Operation().SameSizes(); !in || !out {
			got = append(got, fmt.Sprintf("%v %v %v", k, in, out))
		}
		if KindNamed(k.String()) != k {
			t.Errorf("%v isn't found by its name", k)
		}
	}
	want := "broadcast false true, reduce true false, all_gather_v false true, reduce_scatter_v true false, " +
		"all_to_all false false, all_to_all_v_single false false, barrier false false, scatter false true, " +
		"gather true false, gather_single true false"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got %s", text)
	}
	if k := KindNamed("split"); k.Valid() || k.Operation().Root {
		t.Errorf("split is operation %d", k)
	}
}
