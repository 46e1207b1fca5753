/* Loading the library, and the handles. */
#include "enforcer/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "enforcer/nvml_internal.h"

#define LIBRARY "libnvidia-ml.so.1"

struct symbol {
	const char *name;
	size_t offset; /* in struct nv_calls */
	bool needed;
};

static const struct symbol symbols[] = {
#define ROW(needed, member, symbol, args)                                                          \
	{#symbol, offsetof(struct nv_calls, member), (needed) != 0},
	NV_CALLS(ROW)
#undef ROW
};
#define SYMBOL_COUNT (sizeof(symbols) / sizeof(symbols[0]))

/* ---- answers ---- */

const char *nvml_code_name(int code, char buf[24])
{
	static const struct {
		int code;
		const char *name;
	} names[] = {
		{NV_UNINITIALIZED, "not initialised"},
		{NV_INVALID_ARGUMENT, "invalid argument"},
		{NV_NOT_SUPPORTED, "not supported"},
		{NV_NO_PERMISSION, "no permission"},
		{NV_NOT_FOUND, "not found"},
		{NV_INSUFFICIENT_SIZE, "insufficient size"},
		{NV_DRIVER_NOT_LOADED, "the driver is not loaded"},
		{NV_TIMEOUT, "timeout"},
		{NV_FUNCTION_NOT_FOUND, "function not found"},
		{NV_GPU_IS_LOST, "the GPU is lost"},
		{NV_RESET_REQUIRED, "the GPU needs a reset"},
		{NV_LIB_RM_VERSION_MISMATCH, "driver and library are of different versions"},
		{NV_IN_USE, "in use"},
		{NV_INSUFFICIENT_RESOURCES, "insufficient resources"},
		{NV_VERSION_MISMATCH, "struct version not known"},
		{NV_UNKNOWN, "unknown error"},
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (names[i].code == code)
			return names[i].name;
	}
	snprintf(buf, 24, "code %d", code);
	return buf;
}

static int err_code_of(int code)
{
	switch (code) {
	case NV_INVALID_ARGUMENT:
		return ERR_INVALID;
	case NV_NOT_FOUND:
		return ERR_NOT_FOUND;
	case NV_DRIVER_NOT_LOADED:
	case NV_LIB_RM_VERSION_MISMATCH:
	case NV_IN_USE:
		return ERR_CONFLICT;
	case NV_INSUFFICIENT_RESOURCES:
		return ERR_NO_ROOM;
	default:
		return ERR_IO;
	}
}

int nvml_answer(struct en_nvml *n, int code, const char *call, struct err *err)
{
	char buf[24];

	if (code == NV_OK)
		return 0;
	if (code == NV_NOT_SUPPORTED || code == NV_FUNCTION_NOT_FOUND)
		return EN_NVML_UNSUPPORTED;
	if (code == NV_UNINITIALIZED || code == NV_DRIVER_NOT_LOADED ||
	    code == NV_LIB_RM_VERSION_MISMATCH)
		atomic_store(&n->lost, true);
	return err_set(err, err_code_of(code), "%s: %s", call, nvml_code_name(code, buf));
}

bool en_nvml_lost(const struct en_nvml *n)
{
	return atomic_load(&n->lost);
}

/* ---- loading ---- */

static void put_symbol(struct en_nvml *n, const struct symbol *s, void *address)
{
	/* ISO C has no conversion from object to function pointers; POSIX promises the same bytes. */
	memcpy((char *)&n->call + s->offset, &address, sizeof(address));
}

void nvml_hide(struct en_nvml *n, const char *symbol)
{
	for (size_t i = 0; i < SYMBOL_COUNT; i++) {
		if (strcmp(symbols[i].name, symbol) == 0)
			put_symbol(n, &symbols[i], NULL);
	}
}

static int load(struct en_nvml *n, const char *path, struct err *err)
{
	const char *why;

	n->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (n->library == NULL) {
		why = dlerror();
		return err_set(err, ERR_NOT_FOUND, "%s", why != NULL ? why : path);
	}
	for (size_t i = 0; i < SYMBOL_COUNT; i++) {
		void *address = dlsym(n->library, symbols[i].name);

		if (address == NULL && symbols[i].needed)
			return err_set(err, ERR_NOT_FOUND, "%s has no %s", path, symbols[i].name);
		put_symbol(n, &symbols[i], address);
	}
	return 0;
}

int en_nvml_open(const char *path, struct en_nvml **ret, struct err *err)
{
	struct en_nvml *n = calloc(1, sizeof(*n));
	int r;

	if (n == NULL)
		return err_set(err, ERR_NOMEM, "out of memory");
	atomic_init(&n->lost, false);
	r = load(n, path != NULL ? path : LIBRARY, err);
	if (r == 0) {
		r = nvml_answer(n, n->call.init(), "nvmlInit_v2", err);
		if (r == EN_NVML_UNSUPPORTED)
			r = err_set(err, ERR_IO, "nvmlInit_v2: not supported");
	}
	if (r != 0) {
		if (n->library != NULL)
			dlclose(n->library);
		free(n);
		return r;
	}
	*ret = n;
	return 0;
}

void en_nvml_close(struct en_nvml *n)
{
	if (n == NULL)
		return;
	if (n->events != NULL)
		NVML_CALL(n, event_free, n->events);
	n->call.shutdown();
	dlclose(n->library);
	free(n);
}

/* ---- handles ---- */

int en_nvml_driver_version(struct en_nvml *n, char ret[EN_NVML_TEXT_CAP], struct err *err)
{
	char text[EN_NVML_TEXT_CAP] = "";
	int r = nvml_answer(n, n->call.driver_version(text, NV_VERSION_CAP),
			    "nvmlSystemGetDriverVersion", err);

	if (r != 0)
		return r;
	text[EN_NVML_TEXT_CAP - 1] = '\0';
	memcpy(ret, text, sizeof(text));
	return 0;
}

int en_nvml_count(struct en_nvml *n, unsigned *ret, struct err *err)
{
	return nvml_answer(n, n->call.count(ret), "nvmlDeviceGetCount_v2", err);
}

int en_nvml_device(struct en_nvml *n, unsigned index, struct en_nvml_device **ret, struct err *err)
{
	int r = nvml_answer(n, n->call.by_index(index, ret), "nvmlDeviceGetHandleByIndex_v2", err);

	return r < 0 ? err_prefix(err, r, "GPU %u", index) : r;
}

int en_nvml_device_by_uuid(struct en_nvml *n, const char *uuid, struct en_nvml_device **ret,
			   struct err *err)
{
	int r = nvml_answer(n, n->call.by_uuid(uuid, ret), "nvmlDeviceGetHandleByUUID", err);

	/* A text that is no UUID at all is refused as an argument. */
	if (r == ERR_INVALID)
		r = ERR_NOT_FOUND;
	return r < 0 ? err_prefix(err, r, "%s", uuid) : r;
}

int en_nvml_uuid(struct en_nvml *n, struct en_nvml_device *d, char ret[EN_NVML_TEXT_CAP],
		 struct err *err)
{
	char text[EN_NVML_TEXT_CAP] = "";
	int r = nvml_answer(n, n->call.uuid(d, text, NV_UUID_CAP), "nvmlDeviceGetUUID", err);

	if (r != 0)
		return r;
	text[EN_NVML_TEXT_CAP - 1] = '\0';
	memcpy(ret, text, sizeof(text));
	return 0;
}

int en_nvml_identity(struct en_nvml *n, struct en_nvml_device *d, struct en_nvml_identity *ret,
		     struct err *err)
{
	struct en_nvml_identity id = {.minor = -1};
	struct nv_memory memory = {0};
	struct nv_pci pci = {0};
	unsigned minor;
	int r = en_nvml_uuid(n, d, id.uuid, err);

	if (r == 0)
		r = nvml_answer(n, n->call.name(d, id.product, NV_NAME_CAP), "nvmlDeviceGetName",
				err);
	if (r == 0)
		r = nvml_answer(n, n->call.memory(d, &memory), "nvmlDeviceGetMemoryInfo", err);
	if (r == EN_NVML_UNSUPPORTED)
		return err_set(err, ERR_IO,
			       "the driver does not tell a GPU's UUID, name or memory");
	if (r != 0)
		return r;
	id.product[EN_NVML_TEXT_CAP - 1] = '\0';
	id.mem_bytes = memory.total;
	if (NVML_CALL(n, minor, d, &minor) == NV_OK)
		id.minor = (int)minor;
	if (NVML_CALL(n, pci, d, &pci) == NV_OK) {
		memcpy(id.bus, pci.bus_id, sizeof(id.bus));
		id.bus[sizeof(id.bus) - 1] = '\0';
	}
	*ret = id;
	return 0;
}
