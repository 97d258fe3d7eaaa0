#!/bin/bash
# Muster: this machine ends itself unless it becomes a node in time. Once it is one, never.
# MUSTER_ROOT is set by tests alone.
root="${MUSTER_ROOT-}"
mkdir -p "$root/var/lib/muster" "$root/usr/local/sbin" "$root/etc/systemd/system"
cat > "$root/usr/local/sbin/muster-power-off" <<'END'
#!/bin/bash
root="${MUSTER_ROOT-}"
state="$root/var/lib/muster"
limit=LIMIT
# Any one of these comes only after the API server took this kubelet for a node.
registered() {
  [ -e "$state/registered" ] ||
  [ -e "$root/var/lib/kubelet/pki/kubelet-client-current.pem" ] ||
  [ -e "$root/var/lib/kubelet/pki/kubelet-server-current.pem" ] ||
  [ -n "$(ls -A "$root/var/lib/kubelet/pods" 2>/dev/null)" ] ||
  journalctl --quiet --unit kubelet --output cat 2>/dev/null | grep -q 'Successfully registered node'
}
# Seconds since the launch, those before a reboot included; no clock that could be set.
spent="$(cat "$state/seconds" 2>/dev/null || cut -d. -f1 "$root/proc/uptime")"
until registered; do
  if [ "$spent" -ge "$limit" ]; then
    echo "not a node after $spent s: powering off"
    exec systemctl poweroff
  fi
  sleep 10
  spent=$((spent + 10))
  echo "$spent" > "$state/seconds"
done
touch "$state/registered"
systemctl disable muster-power-off.service
END
cat > "$root/etc/systemd/system/muster-power-off.service" <<'END'
[Unit]
Description=Ends this machine unless it becomes a node in time
ConditionPathExists=!/var/lib/muster/registered
[Service]
ExecStart=/bin/bash /usr/local/sbin/muster-power-off
Restart=on-failure
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --now --no-block muster-power-off.service
