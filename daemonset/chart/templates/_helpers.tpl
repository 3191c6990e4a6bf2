{{/* A value as a flag has it: lists with commas, numbers without an exponent. */}}
{{- define "lockstep.text" -}}
{{- if kindIs "slice" . -}}{{ join "," . }}
{{- else if kindIs "float64" . -}}{{ if eq . (floor .) }}{{ printf "%.0f" . }}{{ else }}{{ printf "%v" . }}{{ end }}
{{- else -}}{{ . }}
{{- end -}}
{{- end }}

{{/* Arguments of a container, from {flags, extra}. null and false leave a flag out. */}}
{{- define "lockstep.args" -}}
{{- range $name, $value := .flags }}
{{- if kindIs "bool" $value }}{{ if $value }}
- --{{ $name }}
{{- end }}
{{- else if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%s" $name (include "lockstep.text" $value) | quote }}
{{- end }}
{{- end }}
{{- range .extra }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* Flags of the agent with those of the components; what the user sets for a flag is stronger. */}}
{{- define "lockstep.agentFlags" -}}
{{- $made := dict "server" (printf "lockstep-central.%s.svc:9443" .Release.Namespace) }}
{{- with .Values.components }}
{{- if or .cdi.enabled .deviceClaims.enabled }}{{ $_ := set $made "cdi-dir" .cdi.dir }}{{ end }}
{{- with .deviceClaims }}
{{- if .enabled }}{{ $_ := set $made "device-claims" (ternary "only" "beside" (eq .extendedResource "nvidia.com/gpu")) }}{{ end }}
{{- end }}
{{- if .gke.enabled }}{{ $_ := set $made "driver-mount" "/home/kubernetes/bin/nvidia:/usr/local/nvidia" }}{{ end }}
{{- if .imex.enabled }}{{ $_ := set $made "imex-channel" .imex.channel }}{{ end }}
{{- if .mps.enabled }}{{ $_ := set $made "sharing-dir" (get .mps.flags "sharing-dir") }}{{ end }}
{{- if .multus.enabled }}{{ $_ := set $made "device-info-dir" "/host/devinfo" }}{{ end }}
{{- if .pcieTree.enabled }}{{ $_ := set $made "pcie-tree" "/etc/lockstep/pcie-tree" }}{{ end }}
{{- if .preflight.enabled }}{{ $_ := set $made "preflight" .preflight.depth }}{{ end }}
{{- if .rdma.enabled }}
{{- $_ := set $made "cgroup-root" "/host-cgroup" }}
{{- $_ := set $made "rdma-hca-handles" .rdma.handles }}
{{- $_ := set $made "rdma-hca-objects" .rdma.objects }}
{{- end }}
{{- if .kernel.enabled }}{{ $_ := set $made "cgroup-root" "/sys/fs/cgroup" }}{{ end }}
{{- end }}
{{- range $name, $value := .Values.agent.flags }}{{ $_ := set $made $name $value }}{{ end }}
{{- toYaml $made }}
{{- end }}

{{- define "lockstep.schedulerFlags" -}}
{{- $made := dict }}
{{- with .Values.components }}
{{- if .elastic.enabled }}{{ $_ := set $made "elastic-controllers" true }}{{ end }}
{{- if .history.enabled }}
{{- $_ := set $made "history" "/var/lib/lockstep/history.db" }}
{{- $_ := set $made "history-size" .history.size }}
{{- end }}
{{- if .nodeCondition.enabled }}{{ $_ := set $made "node-condition" .nodeCondition.condition }}{{ end }}
{{- if .nodeLabels.enabled }}{{ $_ := set $made "node-labels" true }}{{ end }}
{{- if .nodeTaint.enabled }}{{ $_ := set $made "node-taint" .nodeTaint.taint }}{{ end }}
{{- if .queue.enabled }}{{ $_ := set $made "default-queue" true }}{{ end }}
{{- if .namespaces.enabled }}
{{- if not .namespaces.names }}{{ fail "components.namespaces.names: name at least one" }}{{ end }}
{{- $_ := set $made "namespaces" .namespaces.names }}
{{ end }}
{{- end }}
{{- range $name, $value := .Values.scheduler.flags }}{{ $_ := set $made $name $value }}{{ end }}
{{- with .Values.components.console }}
{{- if .enabled }}
{{- $_ := set $made "console-url" .url }}
{{- $_ := set $made "console-listen" (get $made "console-listen" | default "127.0.0.1:9480" | replace "127.0.0.1:" "0.0.0.0:") }}
{{- if .proxySecret }}{{ $_ := set $made "console-proxy-secret" "/etc/lockstep/console/secret" }}{{ end }}
{{- end }}
{{- end }}
{{- toYaml $made }}
{{- end }}

{{/* The port of HOST:PORT, from {flags, flag, of}. */}}
{{- define "lockstep.port" -}}
{{- $address := get .flags .flag | default "" }}
{{- required (printf "%s.flags.%s: HOST:PORT, which the manifests' probes and Services need" .of .flag) (regexFind "[0-9]+$" $address) }}
{{- end }}

{{- define "lockstep.image" -}}
{{- .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .version }}{{ end }}
{{- end }}

{{/* A shipped object with the release's namespace and the common labels: {object, root}. */}}
{{- define "lockstep.object" -}}
{{- $object := .object }}
{{- with .root.Values.commonLabels }}
{{- $_ := set $object.metadata "labels" (merge (dict) (deepCopy .) ($object.metadata.labels | default dict)) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}

{{/* The objects of files/ that match a pattern, with the release's namespace and scheduler names: {pattern, root}. */}}
{{- define "lockstep.files" -}}
{{- $root := .root }}
{{- $names := splitList "," (include "lockstep.text" (get $root.Values.scheduler.flags "scheduler-names" | default (list "lockstep" "volcano"))) }}
{{- range $path, $_ := $root.Files.Glob .pattern }}
{{- range splitList "\n---\n" ($root.Files.Get $path | replace "lockstep-system" $root.Release.Namespace | replace "[\"lockstep\",\"volcano\"]" (toJson $names)) }}
{{- $object := fromYaml . }}
{{- if $object.kind }}
{{ include "lockstep.object" (dict "object" $object "root" $root) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "lockstep.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: lockstep
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
