package store

import (
	"encoding/binary"
	"errors"
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

// errTorn says that a log ends within a record: its writer was killed.
var errTorn = errors.New("the last record is incomplete")

// nextRecord returns the first record of log and its length. The key and the
// value alias log.
func nextRecord(log []byte) (key, value []byte, n int, err error) {
	field := func() ([]byte, bool) {
		if len(log)-n < 4 {
			return nil, false
		}
		size := uint64(binary.LittleEndian.Uint32(log[n:]))
		if size > uint64(len(log)-n-4) {
			return nil, false
		}
		begin := n + 4
		n = begin + int(size)
		return log[begin:n:n], true
	}
	key, ok := field()
	if ok {
		value, ok = field()
	}
	if !ok {
		return nil, nil, 0, errTorn
	}
	return key, value, n, nil
}

// replay carries out the records of log on values and returns how many bytes
// they took, which is less than all if the last record is incomplete.
func replay(values map[string][]byte, log []byte) int {
	done := 0
	for done < len(log) {
		key, value, n, err := nextRecord(log[done:])
		if err != nil {
			break
		}
		done += n
		if target, ok := strings.CutPrefix(string(key), fileDelete); ok {
			delete(values, target)
		} else {
			values[string(key)] = append([]byte{}, value...)
		}
	}
	return done
}
