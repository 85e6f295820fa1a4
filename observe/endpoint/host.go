package endpoint

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// named lets requests through to h that name this server: by the address that they came to, as localhost, by the host's
// own name, or by one of names.
func named(h http.Handler, names []string) http.Handler {
	if own, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(own, ".")
		names = append(slices.Clone(names), own, short)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if !isAddress(host, at) && !isName(host, names) {
			http.Error(w, fmt.Sprintf("%q is no name of this server; --http-name allows one", r.Host),
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hostOf is the host that a request names, without a port, in small letters and without a dot at its end.
func hostOf(text string) string {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(text, "[]")), ".")
}

// isAddress reports whether a host is the address at which a connection has arrived.
func isAddress(host string, at net.Addr) bool {
	ip := net.ParseIP(host)
	tcp, ok := at.(*net.TCPAddr)
	return ip != nil && ok && ip.Equal(tcp.IP)
}

func isName(host string, names []string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.ContainsFunc(names,
		func(name string) bool { return hostOf(name) == host && host != "" })
}
