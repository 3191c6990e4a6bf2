# Inside the VM, after tree.qemu:  . dress.sh   (as root, with bash)
# Makes the stand-ins look like what they stand for: GPUs 10de:2330 (H100), class
# 0x030200; NICs 15b3:1021 (ConnectX-7); each HCA with a `device` link to its PCI
# device as a hardware HCA has.  Files are bind-mounted over sysfs files, the link
# comes from an overlay over the HCA's own directory; all else stays the kernel's.
dress_file() { # FILE TEXT
  mkdir -p "/run/dress$(dirname "$1")"; echo "$2" >"/run/dress$1"; mount --bind "/run/dress$1" "$1"
}
for d in $(realpath /sys/bus/pci/devices/*); do
  read -r c <"$d/class"
  case $c in
    0x0380*) dress_file $d/vendor 0x10de; dress_file $d/device 0x2330; dress_file $d/class 0x030200 ;;
    0x0200*) [ -d $d/net ] && { dress_file $d/vendor 0x15b3; dress_file $d/device 0x1021; } ;;
  esac
done
for h in $(realpath /sys/class/infiniband/*); do
  read -r n <$h/ports/1/gid_attrs/ndevs/0
  p=$(realpath /sys/class/net/$n/device 2>/dev/null) || continue
  mkdir -p /run/dress$h ; ln -sfn ../../..${p#/sys/devices} /run/dress$h/device
  mount -t overlay -o lowerdir=/run/dress$h:$h dress $h || echo "dress: cannot overlay $h"
done
