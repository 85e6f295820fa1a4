//go:build !linux

package seccomptest

import "errors"

func refuse([]string) error { return errors.New("needs Linux") }

var calls []call
