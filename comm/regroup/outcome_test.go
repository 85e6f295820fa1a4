package regroup

import "testing"

// FuzzOutcome reads anything as the outcome of an attempt: what isn't a commit is an error that names members which
// there are.
func FuzzOutcome(f *testing.F) {
	a := &attempt{uuid: "fuzz", members: []Member{{ID: "a"}, {ID: "b", Host: "node", PID: 7}}}
	f.Add([]byte(committed))
	f.Add(a.failure(Lost, "its connection broke", nil, 1).encode())
	f.Add([]byte(`{"k":99,"m":[0,0,0]}`))
	f.Add([]byte(`{"k":1,"m":[-1]}`))
	f.Add([]byte(`{"m":[]}`))
	f.Fuzz(func(t *testing.T, outcome []byte) {
		err := a.decode(outcome, 0)
		if err == nil {
			if string(outcome) != committed {
				t.Errorf("%q is a commit", outcome)
			}
			return
		}
		e := err.(*Error)
		if len(e.Members) == 0 || e.Error() == "" {
			t.Errorf("%q is %+v", outcome, e)
		}
		for _, i := range e.Members {
			if i < 0 || i >= len(a.members) {
				t.Errorf("%q names member %d", outcome, i)
			}
		}
	})
}
