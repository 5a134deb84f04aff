/*
 * status.c - the texts of statuses, and the library's version.
 */
#include "kvtier/kvtier.h"

const char *kvt_status_text(enum kvt_status status)
{
	switch (status) {
	case KVT_OK:
		return "ok";
	case KVT_MISS:
		return "not there, or not in time";
	case KVT_EXISTS:
		return "there already";
	case KVT_FULL:
		return "no room";
	case KVT_BUSY:
		return "too much under way";
	case KVT_EINVAL:
		return "wrong argument";
	case KVT_ENOMEM:
		return "out of memory";
	case KVT_EIO:
		return "refused by the operating system";
	case KVT_ECORRUPT:
		return "read back wrong";
	case KVT_EFORMAT:
		return "store of another format";
	case KVT_ELOCKED:
		return "store owned by another process";
	case KVT_EFORK:
		return "opened before a fork";
	case KVT_ECANCELED:
		return "cancelled";
	case KVT_ENOTSUP:
		return "not supported here";
	}
	return "unknown status";
}

const char *kvt_version(void)
{
	return KVW_VERSION;
}
