package native

import (
	"context"
	"encoding/json"
	"testing"
	"time"
)

// FuzzNotice has rank 1 tell rank 0 anything outside of operations: rank 0 stays in one piece, and if it takes the
// communicator for broken it can say why.
func FuzzNotice(f *testing.F) {
	for _, text := range []string{`{"k":"lost","r":0,"b":1,"t":"gone"}`, `{"k":"mismatch","r":1,"rb":1,"oa":"a","ob":"b"}`,
		`{"k":"abort","r":1,"t":"why not"}`,
		`{"k":"timeout","r":1,"m":[1],"a":[0],"u":[7]}`, `{"k":"lost","r":-1,"b":99}`, `{"k":"left","x":"AAEC"}`,
		`{"k":"answer","s":18446744073709551615,"f":{"-5":"x"}}`, `{"k":"ask"}`,
		`{"k":"timeout","m":[-1,2147483648],"e":-1}`, `[]`, `{"k":"word","x":"eA=="}`} {
		if !json.Valid([]byte(text)) {
			f.Fatal(text)
		}
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		g := pair(t, ctx)[0].(*group)
		g.world.Control(1, payload)
		select {
		case <-g.Broken():
			if g.Cause() == nil || g.Cause().Error() == "" {
				t.Error("broken without a cause")
			}
		default:
		}
	})
}
