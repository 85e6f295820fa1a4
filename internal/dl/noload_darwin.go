package dl

const noLoad = 0x10 // RTLD_NOLOAD
