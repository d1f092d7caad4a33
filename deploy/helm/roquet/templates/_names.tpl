{{- define "roquet.name" -}}
{{- if contains "roquet" .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-roquet" .Release.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "roquet.selector" -}}
app.kubernetes.io/name: roquet
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "roquet.labels" -}}
{{ include "roquet.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "roquet.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "roquet.domain" -}}
{{ include "roquet.name" . }}-headless.$(POD_NAMESPACE).svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "roquet.nameservers" -}}
{{- $addrs := list }}
{{- range $i := until (int .Values.replicas) }}
{{- $addrs = append $addrs (printf "%s-%d.%s:%d" (include "roquet.name" $) $i (include "roquet.domain" $) (int $.Values.ports.namesrv)) }}
{{- end }}
{{- join ";" $addrs }}
{{- end }}

{{- define "roquet.ports" -}}
{{- range $name := list "namesrv" "broker" "fast" "grpc" "http" }}
- name: {{ $name }}
  port: {{ index $.Values.ports $name }}
  targetPort: {{ $name }}
  protocol: TCP
{{- if eq $name "grpc" }}
  appProtocol: kubernetes.io/h2c
{{- end }}
{{- end }}
{{- end }}
