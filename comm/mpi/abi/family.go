package abi

// Family is a binary interface: what handles are, the values of constants, and where a status has its source.
type Family struct {
	Name  string // "Open MPI"
	Title string // what libraries have it

	// Handles are the values of handles by their names in C. In Open MPI they are the addresses of Symbols instead.
	Handles map[string]uint32
	Symbols map[string]string

	InPlace   uintptr
	AnySource int32
	TagUB     int32
	Threads   [4]int32 // MPI_THREAD_SINGLE, FUNNELED, SERIALIZED, MULTIPLE
	Source    int      // the offset of MPI_SOURCE in MPI_Status
}

// StatusBytes is room for a status of any family: the largest, MPI 5's, has 32 bytes.
const StatusBytes = 64

// The families.
var (
	// OpenMPI is that of Open MPI 4 and 5, and of libraries that come from it. Its source is mpi.h of Open MPI 4.1.4 and
	// 5.0.11.
	OpenMPI = &Family{Name: "Open MPI", Title: "Open MPI and libraries made from it", Symbols: map[string]string{
		"MPI_COMM_WORLD": "ompi_mpi_comm_world", "MPI_ERRORS_RETURN": "ompi_mpi_errors_return",
		"MPI_BYTE": "ompi_mpi_byte", "MPI_FLOAT": "ompi_mpi_float", "MPI_DOUBLE": "ompi_mpi_double",
		"MPI_INT8_T": "ompi_mpi_int8_t", "MPI_INT16_T": "ompi_mpi_int16_t", "MPI_INT32_T": "ompi_mpi_int32_t",
		"MPI_INT64_T": "ompi_mpi_int64_t", "MPI_UINT8_T": "ompi_mpi_uint8_t", "MPI_UINT16_T": "ompi_mpi_uint16_t",
		"MPI_UINT32_T": "ompi_mpi_uint32_t", "MPI_UINT64_T": "ompi_mpi_uint64_t",
		"MPI_SUM": "ompi_mpi_op_sum", "MPI_PROD": "ompi_mpi_op_prod", "MPI_MIN": "ompi_mpi_op_min",
		"MPI_MAX": "ompi_mpi_op_max", "MPI_BAND": "ompi_mpi_op_band", "MPI_BOR": "ompi_mpi_op_bor",
		"MPI_BXOR": "ompi_mpi_op_bxor",
	}, InPlace: 1, AnySource: -1, TagUB: 0, Threads: [4]int32{0, 1, 2, 3}, Source: 0}

	// MPICH is that of MPICH 3.1 and later, Intel MPI, MVAPICH and Cray MPICH. Its source is mpi.h of MPICH 5.0.2.
	MPICH = &Family{Name: "MPICH", Title: "MPICH, Intel MPI, Cray MPICH and MVAPICH", Handles: map[string]uint32{
		"MPI_COMM_WORLD": 0x44000000, "MPI_ERRORS_RETURN": 0x54000001,
		"MPI_BYTE": 0x4c00010d, "MPI_FLOAT": 0x4c00040a, "MPI_DOUBLE": 0x4c00080b,
		"MPI_INT8_T": 0x4c000137, "MPI_INT16_T": 0x4c000238, "MPI_INT32_T": 0x4c000439, "MPI_INT64_T": 0x4c00083a,
		"MPI_UINT8_T": 0x4c00013b, "MPI_UINT16_T": 0x4c00023c, "MPI_UINT32_T": 0x4c00043d, "MPI_UINT64_T": 0x4c00083e,
		"MPI_SUM": 0x58000003, "MPI_PROD": 0x58000004, "MPI_MIN": 0x58000002, "MPI_MAX": 0x58000001,
		"MPI_BAND": 0x58000006, "MPI_BOR": 0x58000008, "MPI_BXOR": 0x5800000a,
	}, InPlace: ^uintptr(0), AnySource: -2, TagUB: 0x64400001, Threads: [4]int32{0, 1, 2, 3}, Source: 8}

	// Standard is that of MPI 5. Its source is mpi_abi.h of MPICH 5.0.2.
	Standard = &Family{Name: "MPI 5 ABI", Title: "libmpi_abi.so of MPI 5", Handles: map[string]uint32{
		"MPI_COMM_WORLD": 0x101, "MPI_ERRORS_RETURN": 0x143,
		"MPI_BYTE": 0x247, "MPI_FLOAT": 0x210, "MPI_DOUBLE": 0x214,
		"MPI_INT8_T": 0x240, "MPI_INT16_T": 0x248, "MPI_INT32_T": 0x250, "MPI_INT64_T": 0x258,
		"MPI_UINT8_T": 0x241, "MPI_UINT16_T": 0x249, "MPI_UINT32_T": 0x251, "MPI_UINT64_T": 0x259,
		"MPI_SUM": 0x21, "MPI_PROD": 0x24, "MPI_MIN": 0x22, "MPI_MAX": 0x23,
		"MPI_BAND": 0x28, "MPI_BOR": 0x29, "MPI_BXOR": 0x2a,
	}, InPlace: 1, AnySource: -1, TagUB: 501, Threads: [4]int32{0, 1024, 2048, 4096}, Source: 0}
)
