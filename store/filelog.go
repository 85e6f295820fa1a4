package store

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
)

// The file of a FileStore is a log of records
//
//	u32 length of key | key | u32 length of value | value
//
// in little-endian order. The last record of a key wins. There are three kinds
// of keys: "/" + k is the key k of a user; "-/" + k, with an empty value, deletes
// it; and the bookkeeping keys below have no slash in front.
const (
	fileUser     = "/"
	fileDelete   = "-"
	fileRefs     = "refcount/" // how many stores have the file open
	fileFinished = "cleanup/"  // how many stores were closed
)

// appendRecord appends one record to b.
func appendRecord(b []byte, key string, value []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(key)))
	b = append(b, key...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// maxTornKey bounds the key of a record: no longer ones are written. A file that holds something else announces far
// longer ones nearly always.
const maxTornKey = 64 << 10

var (
	// errTorn says that a log ends within a record: its writer was killed.
	errTorn = errors.New("the last record is incomplete")
	// errNotLog says that a file holds something else.
	errNotLog = errors.New("it isn't a store's file, and is left as it is: give the store a path of its own")
)

// nextRecord returns the first record of log and its length. The key and the
// value alias log. The error is errTorn if log may be the beginning of a record.
func nextRecord(log []byte) (key, value []byte, n int, err error) {
	field := func() (got []byte, size uint64, whole bool) {
		if len(log)-n < 4 {
			n = len(log)
			return nil, 0, false
		}
		size = uint64(binary.LittleEndian.Uint32(log[n:]))
		begin := n + 4
		n = begin + int(min(size, uint64(len(log)-begin)))
		return log[begin:n:n], size, uint64(n-begin) == size
	}
	key, size, whole := field()
	if len(log) >= 4 && !isKey(key, size) || !whole && size > maxTornKey {
		return nil, nil, 0, errNotLog
	}
	if whole {
		value, size, whole = field()
	}
	if size > maxRequest || whole && !isValue(string(key), value) {
		return nil, nil, 0, errNotLog
	}
	if !whole {
		return nil, nil, 0, errTorn
	}
	return key, value, n, nil
}

// isKey says whether a key of size bytes may begin with begin.
func isKey(begin []byte, size uint64) bool {
	if size == 0 {
		return false
	}
	got := string(begin)
	for _, bookkeeping := range []string{fileRefs, fileFinished} {
		if size == uint64(len(bookkeeping)) && strings.HasPrefix(bookkeeping, got) {
			return true
		}
	}
	user, deletes := fileUser, fileDelete+fileUser
	return strings.HasPrefix(got, user) || strings.HasPrefix(got, deletes) ||
		size > 1 && strings.HasPrefix(deletes, got) // "", "-"
}

// isValue says whether a record of key may have this value.
func isValue(key string, value []byte) bool {
	switch {
	case key == fileRefs, key == fileFinished:
		_, err := strconv.ParseInt(string(value), 10, 64)
		return err == nil
	case strings.HasPrefix(key, fileDelete):
		return len(value) == 0
	}
	return true
}

// replay carries out the records of log on values and returns how many bytes
// they took, which is less than all if the last record is incomplete.
func replay(values map[string][]byte, log []byte) (done int, err error) {
	for done < len(log) {
		key, value, n, err := nextRecord(log[done:])
		if err == errTorn {
			break
		}
		if err != nil {
			return done, err
		}
		done += n
		if target, ok := strings.CutPrefix(string(key), fileDelete); ok {
			delete(values, target)
		} else {
			values[string(key)] = append([]byte{}, value...)
		}
	}
	return done, nil
}
