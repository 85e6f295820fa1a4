package dl

const noLoad = 0x4 // RTLD_NOLOAD
