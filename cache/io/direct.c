/*
 * direct.c - judges O_DIRECT by the kernel's report on a file, not by the success of open().
 *
 * Since Linux 6.1 statx reports the alignment that direct I/O on a file needs, and 0 where direct
 * I/O is impossible. Without such a report (older kernels, network file systems, overlayfs on some)
 * this file goes by the file system's magic number: the list below has those that go to the device
 * with O_DIRECT. An alignment of 4096, the largest logical block of devices, suits them all.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "io/direct.h"

#define XFS_MAGIC     0x58465342
#define BCACHEFS_MAGIC 0xca451a4e
#define ZFS_MAGIC     0x2fc12fc1

static const struct {
	uint32_t magic;
	bool direct;
	const char *reason;
} known[] = {
	{EXT4_SUPER_MAGIC, true, ""},
	{XFS_MAGIC, true, ""},
	{BTRFS_SUPER_MAGIC, true, ""},
	{F2FS_SUPER_MAGIC, true, ""},
	{BCACHEFS_MAGIC, true, ""},
	{TMPFS_MAGIC, false, "tmpfs takes O_DIRECT without meaning it"},
	{RAMFS_MAGIC, false, "ramfs has no O_DIRECT"},
	{OVERLAYFS_SUPER_MAGIC, false, "overlayfs does not say what O_DIRECT does below it"},
	{NFS_SUPER_MAGIC, false, "NFS: left to the page cache"},
	{ZFS_MAGIC, false, "ZFS does not say what O_DIRECT does"},
};

static uint32_t magic_of(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 ? (uint32_t)fs.f_type : 0;
}

static void by_magic(int fd, struct kvt_direct *out)
{
	uint32_t magic = magic_of(fd);

	*out = (struct kvt_direct){
		.alignment = 1, .reason = "unknown file system, and the kernel does not say"};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (known[i].magic != magic)
			continue;
		out->direct = known[i].direct;
		out->alignment = out->direct ? 4096 : 1;
		out->reason = known[i].reason;
	}
}

#ifdef STATX_DIOALIGN
/* Fills *out from the kernel's report. Returns false if the kernel has none. */
static bool by_statx(int fd, struct kvt_direct *out)
{
	struct statx st = {0};
	uint32_t memory, offset;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) != 0 ||
		(st.stx_mask & STATX_DIOALIGN) == 0)
		return false;
	memory = st.stx_dio_mem_align;
	offset = st.stx_dio_offset_align;
	*out = (struct kvt_direct){.alignment = 1, .reason = ""};
	if (memory == 0 || offset == 0) {
		out->reason = "the file system has no O_DIRECT for this file";
		return true;
	}
	out->alignment = memory > offset ? memory : offset;
	out->direct = (out->alignment & (out->alignment - 1)) == 0 &&
		out->alignment <= KVT_DIRECT_MAX_ALIGNMENT;
	if (!out->direct) {
		out->alignment = 1;
		out->reason = "O_DIRECT needs an alignment that is not served";
	}
	return true;
}
#else
static bool by_statx(int fd, struct kvt_direct *out)
{
	(void)fd;
	(void)out;
	return false;
}
#endif

void kvt_direct_look(int fd, struct kvt_direct *out)
{
	if (!by_statx(fd, out))
		by_magic(fd, out);
}

bool kvt_direct_durable(int fd)
{
	uint32_t magic = magic_of(fd);

	return magic != TMPFS_MAGIC && magic != RAMFS_MAGIC && magic != HUGETLBFS_MAGIC;
}
